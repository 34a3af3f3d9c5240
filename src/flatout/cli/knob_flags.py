"""The flags of `flatout run` that set knobs, and the messages about them before the script starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

from flatout.base.errors import UsageError
from flatout.base.words import Words
from flatout.cli.commandline import option
from flatout.knobs import catalogue, values
from flatout.knobs.profile import Difference, Provenance
from flatout.launch.settings import PROFILE, Asked, Flag, Settings

COMPILE = "compile"
SHORT_HASH = 12


def check_memory_share(share: float | None) -> None:
    if share is not None and not 0 < share <= 1:  # nor is "nan"
        raise UsageError("error.memory-fraction", value=share)


def is_a_mode(word: str) -> bool:
    """Whether the word behind `--compile` belongs to it: a mode or something like one, and nothing that could be started."""
    knob = catalogue.find(COMPILE)
    if knob is not None and word.lower() in (*knob.domain, *values.YES, *values.NO):
        return True
    return not (word.startswith("-") or word.endswith(".py") or os.path.exists(word) or shutil.which(word))


OPTIONS = (
    option("--profile", metavar="PATH", help="run-profile"),
    option("--no-profile", is_flag=True, help="run-no-profile"),
    option("--safe", is_flag=True, help="run-safe"),
    option("--mixed-precision", metavar="auto|bf16|fp16|no|true|false", help="run-mixed-precision"),
    option("--compile", metavar="[MODE]", help="run-compile", takes=is_a_mode, otherwise="default"),
    option("--batch-size", metavar="N", help="run-batch-size"),
    option("--workers", metavar="N", help="run-workers"),
    option("--pin-memory/--no-pin-memory", default=None, help="run-pin-memory"),
    option("--knob", multiple=True, metavar="NAME=VALUE", help="run-knob"),
)

# Flag -> the knob that it turns.
NAMED = {"mixed_precision": "precision", "compile": COMPILE, "batch_size": "batch_size", "workers": "workers"}


def knob_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for add in reversed(OPTIONS):
        command = add(command)
    return command


def asked(flags: dict[str, Any]) -> Asked:
    """The values as the catalogue spells them; a wrong one is one sentence."""
    found = []
    for name, knob in NAMED.items():
        if flags[name] is not None:
            found.append(_flag(f"--{name.replace('_', '-')}", knob, flags[name], between=" "))
    if flags["pin_memory"] is not None:
        shown = "--pin-memory" if flags["pin_memory"] else "--no-pin-memory"
        found.append(Flag(shown, "pin_memory", "on" if flags["pin_memory"] else "off"))
    for written in flags["knob"]:
        name, equals, value = written.partition("=")
        if not equals:
            raise UsageError("error.knob-no-equals", written=written)
        found.append(_flag("--knob", name, value, between="="))
    return Asked(flags=found, profile=flags["profile"], no_profile=flags["no_profile"], safe=flags["safe"])


def _flag(flag: str, name: str, value: str, between: str) -> Flag:
    knob = values.known(name, flag)
    shown = f"{flag} {value}" if between == " " else f"{flag} {name}={value}"
    return Flag(shown, knob.name, values.meant(knob, value, flag))


def sentences(settings: Settings, words: Words) -> list[str]:
    """What must be said before anything is put on: nothing about the training changes silently."""
    started = _started_with(settings, words)
    if settings.profile is None:
        return started
    path, parts = settings.profile_path, words("run.semicolon").join(_difference(found, words) for found in settings.differing)
    if not settings.applied and settings.anonymous:
        return [words("profile.anonymous", path=path)]
    if not settings.applied:
        return [words("profile.left-out", path=path, differences=parts)]
    said = [words("profile.other", path=path, differences=parts)] if parts else []
    return [*said, _announcement(settings, words), *started]


def _started_with(settings: Settings, words: Words) -> list[str]:
    """Another batch is another training: the words that ask the script for it are shown."""
    if settings.given and settings.profile is not None:
        left = " ".join(f"{flag} {value}" for flag, value in settings.profile.arguments.items())
        return [words("profile.own-argument", path=settings.profile_path, arguments=left, given=settings.given)]
    said = " ".join(f"{flag} {value}" for flag, value in settings.arguments.items())
    return [words("profile.arguments", arguments=said)] if said else []


def _announcement(settings: Settings, words: Words) -> str:
    """What comes from the profile; its figure only where nothing else was mixed in, because only that was measured."""
    assert settings.profile is not None
    own = {name: value for name, value in settings.values.items() if settings.sources[name] == PROFILE}
    knobs = words("run.comma").join(f"{name}={value}" for name, value in own.items()) or words("profile.nothing")
    said = words("profile.put-on", path=settings.profile_path, knobs=knobs)
    whole = settings.values == values.put_on(settings.profile.knobs)
    return said + (_measured(settings.profile.provenance, words) if whole else "")


def _measured(provenance: Provenance, words: Words) -> str:
    if provenance.ratio is None or provenance.low is None or provenance.high is None:
        return ""
    figures = {name: f"{getattr(provenance, name):.2f}" for name in ("ratio", "low", "high")}
    return words("profile.measured", date=provenance.date[:10] or "?", **figures)


def _difference(found: Difference, words: Words) -> str:
    short = SHORT_HASH if found.part == "script" else None
    here = found.here[:short] or words("missing.unknown")
    return words("profile.difference", part=words(f"profile.{found.part}"), recorded=found.recorded[:short], here=here)
