"""The history's database tables; a file that is not one of ours is renamed."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from flatout.measure.model import Note
from flatout.watch.columns import KINDS, Kind
from flatout.watch.rolling import TIERS, Tier

SCHEMA = 1
MEMORY = ":memory:"
PATIENCE_S = 2.0  # for a reader that holds the file


class NotOursError(Exception):
    """Written by a newer flatout, or damaged: `code` of the note that says so."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def table_of(kind: Kind, tier: Tier) -> str:
    return f"{kind.name}_{tier.name}"


def columns_of(kind: Kind, tier: Tier) -> list[str]:
    if not tier.width_ms:
        return [column.name for column in kind.columns]
    found = []
    for column in kind.columns:
        found += [column.name] if column.bits else [f"{column.name}_{part}" for part in ("mean", "low", "high")]
    return found


def open_to_write(file: Path | None) -> tuple[sqlite3.Connection, list[Note]]:
    """What cannot be used is renamed and told of; a new one takes its place."""
    if file is None:
        return _made(_connect(MEMORY)), []
    try:
        return _opened(file), []
    except NotOursError as problem:
        note = Note(code=problem.code, params={"path": str(file), "aside": str(set_aside(file))})
        return _opened(file), [note]


def open_to_read(file: Path) -> sqlite3.Connection:
    """Beside the writer: nothing is changed, and nothing is made."""
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=PATIENCE_S, check_same_thread=False)
    try:
        _check(connection)
    except (NotOursError, sqlite3.Error):
        connection.close()
        raise
    return connection


def set_aside(file: Path) -> Path:
    """With what belongs to it: a log that is left behind would be taken for the new file's."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = file.with_name(f"{file.stem}-{stamp}{file.suffix}")
    for end in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{file}{end}", f"{aside}{end}")
    return aside


def _opened(file: Path) -> sqlite3.Connection:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)  # the user's alone; SQLite would follow the umask
    os.close(descriptor)
    connection = _connect(str(file))
    try:
        _check(connection)
        return _made(connection)
    except NotOursError:
        connection.close()
        raise
    except sqlite3.DatabaseError as error:
        connection.close()
        if is_damage(error):
            raise NotOursError("history-damaged") from error
        raise


def _connect(name: str) -> sqlite3.Connection:
    return sqlite3.connect(name, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)


def _check(connection: sqlite3.Connection) -> None:
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        sound = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            raise NotOursError("history-damaged") from error
        raise
    if version > SCHEMA:
        raise NotOursError("history-newer")
    if sound != "ok" or version < 0:
        raise NotOursError("history-damaged")
    if version == SCHEMA and not _tables() <= {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}:
        raise NotOursError("history-damaged")


def is_damage(error: sqlite3.Error) -> bool:
    """Not a disk that is full, or a file that somebody else holds."""
    plain = error.sqlite_errorcode & 0xFF if getattr(error, "sqlite_errorcode", None) else 0
    return plain in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_ERROR)


def _tables() -> set[str]:
    return {"subjects", "changes", *(table_of(kind, tier) for kind in KINDS for tier in TIERS)}


def _made(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")  # a power cut may cost the last seconds, and damages nothing
    connection.execute("PRAGMA journal_size_limit=1048576")
    connection.execute("PRAGMA wal_autocheckpoint=200")
    connection.execute("PRAGMA cache_size=-2000")
    if connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA:
        return connection
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE subjects (id INTEGER PRIMARY KEY, kind TEXT, name TEXT, UNIQUE (kind, name))")
    connection.execute(
        "CREATE TABLE changes (subject INTEGER, name TEXT, t INTEGER, value TEXT, PRIMARY KEY (subject, name, t)) WITHOUT ROWID"
    )
    for kind in KINDS:
        for tier in TIERS:
            # By time first: what is new comes at the end, what is old goes at the beginning, and pages stay full.
            names = ", ".join([*(["n"] if tier.width_ms else []), *columns_of(kind, tier)])
            table = table_of(kind, tier)
            connection.execute(
                f"CREATE TABLE {table} (t INTEGER, subject INTEGER, {names}, PRIMARY KEY (t, subject)) WITHOUT ROWID"
            )
    connection.execute(f"PRAGMA user_version={SCHEMA}")
    connection.execute("COMMIT")
    return connection
