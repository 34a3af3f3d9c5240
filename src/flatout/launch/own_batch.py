"""Adds a batch size from a flag or profile to the script's command line, unless the user gave one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flatout.base.errors import UsageError
from flatout.base.records import Missing
from flatout.launch import asked_help, own_argument, protection, target
from flatout.launch.own_argument import BATCH, RATE, Argument, Searched
from flatout.launch.protection import Kind, Protection, Trying
from flatout.launch.settings import FLAG, PROFILE, Asked, Settings
from flatout.launch.written import folders_of

FLAG_NAME = "--batch-size"


Before = Callable[[Protection], None]


def put_on(
    line: Sequence[str], settings: Settings, asked: Asked, environ: Mapping[str, str], before: Before = lambda held: None
) -> list[str]:
    """The command to start; `settings` are told what was put on it. `before` the script is asked for its help, if it is."""
    wanted = settings.values.get("batch_size")
    if wanted is None:
        return list(line)
    if settings.sources.get("batch_size") == FLAG:
        return _by_flag(line, settings, wanted, asked, lambda: _help_text(line, environ, before))
    return _by_profile(line, settings)


def _by_flag(line: Sequence[str], settings: Settings, wanted: str, asked: Asked, ask_help: Callable[[], str]) -> list[str]:
    # Without its source nobody knows whether the script takes `--help` for what it means.
    may_ask = target.script_file(line[1:]) is not None
    found = own_argument.find(Searched(words=list(line[1:]), names=BATCH, ask_help=ask_help if may_ask else None))
    if isinstance(found, Missing) and settings.profile is not None and settings.profile.arguments:
        found = _argument(line, next(iter(settings.profile.arguments)))
    if isinstance(found, Missing):
        if any(flag.knob == "batch_size" and flag.shown.startswith(FLAG_NAME) for flag in asked.flags):
            raise UsageError("error.run-no-batch-argument", value=wanted)
        return list(line)
    settings.arguments = {found.flag: wanted}
    return own_argument.put(line, found, wanted)


def _help_text(line: Sequence[str], environ: Mapping[str, str], before: Before) -> str:
    """Not where other programs and libraries could overwrite something: nobody has asked for trials."""
    trying = Trying(line=list(line), folders=folders_of(line[1:], Path.cwd()), environ=dict(environ))
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(protection.choose(trying))
        except UsageError:
            return ""
        if held.kind not in (Kind.OVERLAY, Kind.LANDLOCK):
            return ""
        before(held)
        return asked_help.printed(line, environ, held)


def _by_profile(line: Sequence[str], settings: Settings) -> list[str]:
    """All of its arguments or none: a learning rate that followed a batch is wrong without it."""
    assert settings.profile is not None
    assert settings.sources.get("batch_size") == PROFILE
    wanted = settings.profile.arguments
    arguments = {flag: _argument(line, flag) for flag in wanted}
    for flag, argument in arguments.items():
        typed = own_argument.value_in(line[1:], argument.names)
        tuned_from = own_argument.value_in(settings.profile.provenance.command, argument.names)
        if typed is not None and typed not in (tuned_from, wanted[flag]):
            settings.given = f"{flag} {typed}"
            return list(line)
    words = list(line)
    for flag, argument in arguments.items():
        words = own_argument.put(words, argument, wanted[flag])
    settings.arguments = dict(wanted)
    return words


def _argument(line: Sequence[str], flag: str) -> Argument:
    """With all its names, where the script's source tells them: `-b 8` is `--batch-size 8`."""
    for names in (BATCH, RATE):
        found = own_argument.find(Searched(words=list(line[1:]), names=names))
        if not isinstance(found, Missing) and flag in found.names:
            return found
    return Argument(flag=flag, names=(flag,), value=None)
