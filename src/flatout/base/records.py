"""Versioned JSON records: the only file that imports msgspec; atomic writes, and reading of older versions.

A record is written as one JSON object that begins with its kind and version. Readers take any older version of the
kind through the upgrades registered for it; a newer one is refused with a sentence, never guessed at.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import msgspec
from msgspec import Struct, field

from flatout.base.errors import RecordError
from flatout.base.printable import whole

__all__ = [
    "Missing",
    "Record",
    "Struct",
    "convert",
    "decode",
    "dump",
    "encode",
    "field",
    "read",
    "replace",
    "upgraded",
    "write",
    "write_bytes",
]


class Missing(Struct, frozen=True):
    """A value that is not there, and why: a short code in `reason` (`missing.<reason>` in the catalogue), a detail."""

    reason: str
    detail: str = ""


class Record(Struct, kw_only=True):
    """Base of everything that is written to a file or passed between rooms as a whole."""

    KIND: ClassVar[str]
    VERSION: ClassVar[int] = 1
    # From version N to N+1, as plain dicts: UPGRADES[N](old) -> new.
    UPGRADES: ClassVar[dict[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {}


R = TypeVar("R", bound=Record)
S = TypeVar("S", bound=Struct)

_HEAD = ("kind", "version")


def replace(record: S, **changes: Any) -> S:
    return msgspec.structs.replace(record, **changes)


def dump(value: Any) -> Any:
    """Plain dicts and lists; a record's own come after its kind and version."""
    body = msgspec.to_builtins(value)
    if isinstance(value, Record):
        return {"kind": value.KIND, "version": value.VERSION, **body}
    return body


def encode(value: Any) -> bytes:
    plain = dump(value)
    try:
        text = msgspec.json.encode(plain)
    except UnicodeEncodeError:  # a file whose name is not in UTF-8
        text = msgspec.json.encode(_in_utf8(plain))
    return msgspec.json.format(text, indent=2) + b"\n"


def _in_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, dict):
        return {_in_utf8(name): _in_utf8(part) for name, part in value.items()}
    return [_in_utf8(part) for part in value] if isinstance(value, list | tuple) else value


def decode(data: bytes | str, record: type[R], source: str = "") -> R:
    """A record of the wanted kind from JSON, upgraded where an older flatout wrote it."""
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # bytes that are no text; 5,000 levels
        raise RecordError("error.record-damaged", source=source, detail=str(error)) from error
    return convert(upgraded(body, record, source), record, source)


def upgraded(body: Any, record: type[Record], source: str = "") -> dict[str, Any]:
    """A plain tree of the wanted kind as this version writes it."""
    if not isinstance(body, dict) or body.get("kind") != record.KIND:
        found = body.get("kind") if isinstance(body, dict) else None
        raise RecordError("error.record-kind", source=source, wanted=record.KIND, found=found or "?")
    version = body.get("version")
    if not isinstance(version, int) or version > record.VERSION:
        raise RecordError("error.record-newer", source=source, found=version, known=record.VERSION)
    if version < 1:
        raise RecordError("error.record-damaged", source=source, detail=f"version {version}")
    try:
        while version < record.VERSION:
            body = record.UPGRADES[version](cast("dict[str, Any]", body))
            version += 1
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RecordError("error.record-damaged", source=source, detail=f"version {version}") from error
    return cast("dict[str, Any]", body)


def convert(body: dict[str, Any], record: type[S], source: str = "") -> S:
    """A plain tree, kind and version left out, as the record that it holds."""
    try:
        return msgspec.convert({k: v for k, v in body.items() if k not in _HEAD}, record)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise RecordError("error.record-damaged", source=source, detail=str(error)) from error


def read(path: Path, record: type[R]) -> R:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError("error.record-unreadable", source=str(path), detail=error.strerror or str(error)) from error
    return decode(data, record, str(path))


def write(path: Path, value: Any) -> None:
    write_bytes(path, encode(value))


def write_bytes(path: Path, data: bytes, rights: int = 0o666) -> None:
    """Whole or not at all: a reader, or a crash in the middle, never sees half a file. `rights`, less the user's umask."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), rights)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
