"""Writes TOML (texts, numbers, booleans, lists of texts); the standard library can only read it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Value = str | int | float | bool | Sequence[str]

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def table(head: str, values: Mapping[str, Value]) -> str:
    """`[head]` and its lines; without a head, the lines alone."""
    lines = [f"{key(name)} = {written(value)}" for name, value in values.items()]
    return "\n".join([f"[{head}]", *lines] if head else lines) + "\n"


def key(name: str) -> str:
    return name if BARE_KEY.fullmatch(name) else quoted(name)


def written(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int | float):
        return repr(value)  # TOML writes inf, nan and exponents as Python does
    return f"[{', '.join(quoted(item) for item in value)}]"


def quoted(text: str) -> str:
    # Bytes of an argument that are no text reach us as lone surrogates, which no TOML file can hold.
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return f'"{"".join(_escaped(character) for character in whole)}"'


def _escaped(character: str) -> str:
    if character in SHORT:
        return SHORT[character]
    if character < " " or character == "\x7f":
        return f"\\u{ord(character):04x}"
    return character
