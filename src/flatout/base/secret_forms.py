"""Removes known secrets from texts in every printed form: JSON, Python repr, URL-encoded, base64."""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO
from urllib.parse import quote, quote_plus

HIDDEN = "***"
SHORTEST = 6  # characters of what is looked for: anything shorter stands in a text by chance
SHORTEST_LINE = 16  # of a key of several lines, each of which is looked for by itself
LEFT_OF_ONE = 4  # characters of a secret's beginning that a text which was cut short may end with
CHUNK = 1 << 20


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """A text without these values."""
    forms = _forms(tuple(secrets))
    return _any_of(forms).sub(HIDDEN, text) if forms else text


def cut_scrubbed(text: str, secrets: Iterable[str]) -> str:
    """Of a text that was cut to a length: nor the beginning of one at its end."""
    secrets = tuple(secrets)
    text = scrubbed(text, secrets)
    for form in _forms(secrets):
        for length in range(len(form) - 1, LEFT_OF_ONE - 1, -1):
            if text.endswith(form[:length]):
                return text[:-length] + HIDDEN
    return text


def longest(secrets: Iterable[str]) -> int:
    """Characters of the longest form."""
    return max(map(len, _forms(tuple(secrets))), default=0)


def copy_scrubbed(source: BinaryIO, target: BinaryIO, secrets: Iterable[str]) -> None:
    """Piece by piece: what a script prints may be larger than the memory, and have no line ends."""
    forms = sorted({_octets_of(form) for form in _forms(tuple(secrets))}, key=len, reverse=True)
    pattern = re.compile(b"|".join(map(re.escape, forms)) or rb"(?!)")
    margin = len(forms[0]) if forms else 0
    held = b""
    while piece := source.read(CHUNK):
        held += piece
        done = max(0, len(held) - margin)  # what begins behind may go on in the next piece
        position = 0
        for match in pattern.finditer(held):
            if match.start() >= done:
                break
            target.write(held[position : match.start()] + HIDDEN.encode())
            position = match.end()
        target.write(held[position:done])
        held = held[max(position, done) :]
    target.write(pattern.sub(HIDDEN.encode(), held))


@functools.lru_cache(maxsize=16)
def _any_of(forms: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, forms)))


@functools.lru_cache(maxsize=16)
def _forms(secrets: tuple[str, ...]) -> tuple[str, ...]:
    """The longest first, so that none hides a part of another."""
    found = {form for secret in secrets for form in _forms_of(secret) if len(form) >= min(len(secret), SHORTEST)}
    return tuple(sorted(found, key=len, reverse=True))


def _forms_of(secret: str) -> Iterator[str]:
    octets = _octets_of(secret)
    yield secret
    yield octets.decode("utf-8", "replace")  # as we read what was printed
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    yield from (repr(secret)[1:-1], ascii(secret)[1:-1])
    yield from (quote(octets, safe=""), quote(octets), quote_plus(octets))
    if len(secret) >= SHORTEST:
        yield from _in_base64(octets)
    yield from (line.strip() for line in secret.splitlines() if len(line.strip()) >= SHORTEST_LINE)


def _octets_of(secret: str) -> bytes:
    try:
        return secret.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character, from a file
        return secret.encode("utf-8", "replace")


def _in_base64(octets: bytes) -> Iterator[str]:
    """By itself or in the midst of something longer (`user:password`): three bytes are four characters."""
    for before in range(3):
        whole = base64.b64encode(bytes(before) + octets)
        first = (0, 2, 3)[before]
        last = len(whole) if (before + len(octets)) % 3 == 0 else (before + len(octets)) * 8 // 6
        standard = whole[first:last].decode("ascii")
        yield from (standard, standard.replace("+", "-").replace("/", "_"))
