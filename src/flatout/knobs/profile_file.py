"""Reads and writes `flatout.toml`; a mistake in it ends in one sentence."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Any

from flatout.base import records
from flatout.base.errors import RecordError, UnknownNameError, UsageError
from flatout.base.file_bytes import bytes_of
from flatout.knobs import catalogue, toml_text, values
from flatout.knobs.profile import KIND, Fingerprint, Profile, Promise, Provenance

NAME = "flatout.toml"

HEAD = """\
# Settings of one training script for one machine. `flatout run` finds them beside the script and puts them on;
# its flags win over them, and --no-profile leaves them out. `flatout explain NAME` has the page of each knob.
"""

OPTION = re.compile(r"-{0,2}[A-Za-z][\w.-]{0,80}")
RATE = re.compile(r"\d{0,10}\.?\d{1,20}(?:[eE][-+]?\d{1,3})?")

# The sections and their keys: a misspelt one is named rather than passed over.
SECTIONS = {
    "provenance": Provenance.__struct_fields__,
    "fingerprint": Fingerprint.__struct_fields__,
    "promise": Promise.__struct_fields__,
}
TOP = ("kind", "version", "knobs", "arguments", *SECTIONS)


LARGEST = 1 << 20  # a profile is a page; a checkpoint given by mistake is not


def read(path: Path) -> Profile:
    try:
        text = bytes_of(path, LARGEST).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("error.cannot-read", path=str(path), detail=getattr(error, "strerror", None) or str(error)) from error
    return parse(text, str(path))


def parse(text: str, source: str) -> Profile:
    try:
        tree = tomllib.loads(text.removeprefix("\ufeff"))  # Windows editors put a mark before the first line
    except (ValueError, RecursionError) as error:  # a TOMLDecodeError is one, and so is a number of 5,000 digits
        raise UsageError("error.profile-syntax", path=source, detail=str(error)) from error
    # A profile written by hand says neither; one of a newer flatout says what this one cannot know.
    tree = {"kind": KIND, "version": Profile.VERSION, **tree}
    try:
        tree = records.upgraded(tree, Profile, source)
        _check_names(tree, source)
        knobs = _knobs(tree.pop("knobs", {}), source)
        profile = records.replace(records.convert(tree, Profile, source), knobs=knobs)
        _check_arguments(profile, source)
        return profile
    except RecordError as error:
        raise UsageError(error.key, **error.params) from error


def _check_arguments(profile: Profile, source: str) -> None:
    """They go onto the script's command line: the batch size, and the learning rate that follows it; nothing else."""
    batch = profile.knobs.get("batch_size")
    for flag, value in profile.arguments.items():
        rate = value != batch and RATE.fullmatch(value) is not None
        if not OPTION.fullmatch(flag) or not (value == batch or rate):
            raise UsageError("error.profile-argument", path=source, argument=f"{flag} {value}")
    if len(profile.arguments) > 2:
        raise UsageError("error.profile-argument", path=source, argument=" ".join(profile.arguments))


def _check_names(tree: dict[str, Any], source: str) -> None:
    for name in tree:
        _check_name(name, TOP, source, "")
    for section, keys in SECTIONS.items():
        part = tree.get(section, {})
        for name in part if isinstance(part, dict) else ():
            _check_name(name, keys, source, f"{section}.")


def _check_name(name: str, allowed: tuple[str, ...], source: str, section: str) -> None:
    if name in allowed:
        return
    near = difflib.get_close_matches(name, allowed, n=1)
    # A knob outside its table is the commonest slip of all.
    meant = f"{section}{near[0]}" if near else f"knobs.{name}" if catalogue.find(name) else ""
    key = "error.profile-key-near" if meant else "error.profile-key"
    raise UnknownNameError(key, path=source, name=f"{section}{name}", near=meant)


def _knobs(table: object, source: str) -> dict[str, str]:
    if not isinstance(table, dict):
        raise UsageError("error.profile-no-table", path=source, name="knobs")
    found: dict[str, str] = {}
    for name, written in table.items():
        knob = values.known(name, source)
        if not isinstance(written, values.Written):
            raise UsageError("error.knob-no-value", where=source, name=name, values=", ".join(knob.domain))
        found[knob.name] = values.meant(knob, written, source)
    values.check_together(found, source)
    return found


def text_of(profile: Profile) -> str:
    head: dict[str, toml_text.Value] = {"kind": profile.KIND, "version": profile.VERSION}
    parts = [HEAD + toml_text.table("", head), toml_text.table("knobs", _as_people_write(profile.knobs))]
    parts += [toml_text.table("arguments", profile.arguments)] if profile.arguments else []
    for name in SECTIONS:
        part = records.dump(getattr(profile, name)) if getattr(profile, name) != Promise() else {}
        known = {key: value for key, value in part.items() if value not in (None, "", [], {})}
        tables = {key: known.pop(key) for key, value in list(known.items()) if isinstance(value, dict)}
        parts += [toml_text.table(name, known)] if known else []
        parts += [toml_text.table(f"{name}.{key}", table) for key, table in tables.items()]
    return "\n".join(parts)


def _as_people_write(knobs: dict[str, str]) -> dict[str, toml_text.Value]:
    """`workers = 8` and `pin_memory = true`; words stay words."""
    found: dict[str, toml_text.Value] = {}
    for name, value in knobs.items():
        found[name] = value == "on" if value in catalogue.ON_OFF else int(value) if value.isdecimal() else value
    return found


def write(path: Path, profile: Profile) -> None:
    records.write_bytes(path, text_of(profile).encode("utf-8"))
