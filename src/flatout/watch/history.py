"""The history of samples: every second for an hour, every ten seconds for half a day, every five minutes for two months.

One process per user and host writes; others read beside it. A fault of the disk never stops the watching: what cannot be
written is left out and said once, and is tried again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flatout.base.records import Missing, dump
from flatout.machine.telemetry import CardSample, Sample
from flatout.measure.model import Note
from flatout.watch import place, tables
from flatout.watch.columns import CARD, HOST, KINDS, RUN, Kind, Values, of_card, of_host
from flatout.watch.rolling import COARSE, FINE, RAW, TIERS, Bucket, Stored, Tier, bucket_of, joined, stored
from flatout.watch.tables import columns_of, table_of

PRUNE_EVERY_MS = 60_000
TRY_AGAIN_MS = 60_000

Key = tuple[str, int]  # kind, subject


class History:
    """`notes` grows by what its user should be told, each once."""

    def __init__(self, connection: sqlite3.Connection, notes: list[Note], lock: place.Lock | None = None) -> None:
        self._base = connection
        self._lock = lock
        self.notes = notes
        self._subjects: dict[tuple[str, str], int] = {}
        self._said: dict[tuple[int, str], Any] = {}
        self._buckets: dict[tuple[Key, str], Bucket] = {}
        self._pruned_ms = 0
        self._resting_until = 0
        self._recover()

    # -- writing -----------------------------------------------------------------------------------------------------------

    def add(self, sample: Sample) -> None:
        things: list[tuple[Kind, str, Values]] = [(HOST, "host", of_host(sample.host))]
        if not isinstance(sample.cards, Missing):
            things += [(CARD, identity(card), of_card(card)) for card in sample.cards]
        self._write(sample.t, things)

    def add_run(self, t: float, run: str, values: Values) -> None:
        """What a training did up to `t`, since the entry before: columns of `RUN`."""
        self._write(t, [(RUN, run, values)])

    def _write(self, t: float, things: list[tuple[Kind, str, Values]]) -> None:
        t_ms = round(t * 1000)
        if t_ms < self._resting_until:
            return
        try:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                for kind, name, values in things:
                    self._write_one(t_ms, kind, name, values)
                self._prune(t_ms)
                self._base.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
        except sqlite3.Error as error:
            self._failed(t_ms, error)

    def _roll_back(self) -> None:
        self._subjects.clear()
        self._said.clear()
        if self._base.in_transaction:
            self._base.execute("ROLLBACK")

    def _write_one(self, t_ms: int, kind: Kind, name: str, values: Values) -> None:
        subject = self._subject(kind, name)
        row = stored(kind, values)
        marks = ", ".join("?" * (len(row) + 2))
        self._base.execute(f"INSERT OR REPLACE INTO {table_of(kind, RAW)} VALUES ({marks})", (t_ms, subject, *row))
        for column, number in zip(kind.columns, row, strict=True):
            if number is None:
                self._change(t_ms, subject, column.name, values.get(column.name, Missing("not-reported")))
        for constant in kind.constants:
            if constant in values:
                self._change(t_ms, subject, constant, values[constant])
        for tier in (FINE, COARSE):
            self._gather(kind, subject, tier, t_ms, row)

    def _subject(self, kind: Kind, name: str) -> int:
        known = self._subjects.get((kind.name, name))
        if known is None:
            self._base.execute("INSERT OR IGNORE INTO subjects (kind, name) VALUES (?, ?)", (kind.name, name))
            (known,) = self._base.execute("SELECT id FROM subjects WHERE kind = ? AND name = ?", (kind.name, name)).fetchone()
            self._subjects[kind.name, name] = known
        return int(known)

    def _change(self, t_ms: int, subject: int, name: str, value: Any) -> None:
        if isinstance(value, Missing):
            value = Missing(value.reason)  # its details may differ every second
        if (subject, name) not in self._said or self._said[subject, name] != value:
            self._said[subject, name] = value
            text = json.dumps(dump(value), separators=(",", ":"))
            self._base.execute("INSERT OR REPLACE INTO changes VALUES (?, ?, ?, ?)", (subject, name, t_ms, text))

    def _gather(self, kind: Kind, subject: int, tier: Tier, t_ms: int, row: list[Stored]) -> None:
        start = bucket_of(tier, t_ms)
        place_of = ((kind.name, subject), tier.name)
        bucket = self._buckets.get(place_of)
        if bucket is None or bucket.start_ms != start:
            if bucket is not None:
                self._put(kind, subject, tier, bucket)
            bucket = self._buckets[place_of] = Bucket(kind, start)
        bucket.add(row)

    def _put(self, kind: Kind, subject: int, tier: Tier, bucket: Bucket) -> None:
        row, number, table = bucket.row(), bucket.number, table_of(kind, tier)
        found = self._base.execute(
            f"SELECT n, {', '.join(columns_of(kind, tier))} FROM {table} WHERE t = ? AND subject = ?",
            (bucket.start_ms, subject),
        ).fetchone()
        if found is not None:  # the machine's clock was set back
            row, number = joined(kind, list(found[1:]), int(found[0]), row, number), number + int(found[0])
        marks = ", ".join("?" * (len(row) + 3))
        self._base.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", (bucket.start_ms, subject, number, *row))

    def _prune(self, t_ms: int) -> None:
        if 0 <= t_ms - self._pruned_ms < PRUNE_EVERY_MS:
            return
        self._pruned_ms = t_ms
        for kind in KINDS:
            for tier in TIERS:
                self._base.execute(f"DELETE FROM {table_of(kind, tier)} WHERE t < ?", (t_ms - tier.kept_ms,))
        self._base.execute(
            "DELETE FROM changes WHERE t < ? AND t < (SELECT max(t) FROM changes AS later"
            " WHERE later.subject = changes.subject AND later.name = changes.name)",
            (t_ms - COARSE.kept_ms,),
        )

    # -- beginning, faults, end --------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """What the last writer had not put into its buckets yet: it may have been killed."""
        for kind in KINDS:
            for tier in (FINE, COARSE):
                (last,) = self._base.execute(f"SELECT max(t) FROM {table_of(kind, tier)}").fetchone()
                since = 0 if last is None else last + tier.width_ms
                rows = self._base.execute(f"SELECT * FROM {table_of(kind, RAW)} WHERE t >= ? ORDER BY t", (since,)).fetchall()
                for t_ms, subject, *row in rows:
                    self._gather(kind, subject, tier, t_ms, row)

    def _failed(self, t_ms: int, error: sqlite3.Error) -> None:
        """A full disk may have room again; any other fault means that this file is not to be trusted: on in memory."""
        code = getattr(error, "sqlite_errorcode", None)
        waits = code is not None and code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        self._tell(Note(code="history-full" if waits else "history-lost", params={"detail": str(error)}))
        if waits:
            self._resting_until = t_ms + TRY_AGAIN_MS
            return
        self.close()
        self._base, _ = tables.open_to_write(None)
        self._buckets.clear()

    def _tell(self, note: Note) -> None:
        if not any(told.code == note.code for told in self.notes):
            self.notes.append(note)

    def close(self) -> None:
        self._base.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def base(self) -> sqlite3.Connection:
        """For reading alone, in the writer's own thread."""
        return self._base


def identity(card: CardSample) -> str:
    """Its number may be another card's tomorrow."""
    return card.uuid if isinstance(card.uuid, str) else f"#{card.index}"


def begin(environ: Mapping[str, str]) -> History:
    """To write: in the user's file where nobody else does, else in memory. Never raises for what a disk may do."""
    chosen = place.choose(environ)
    if chosen.file is not None:
        history = _in_file(chosen.file, chosen.notes)
        if history is not None:
            return history
    connection, _ = tables.open_to_write(None)
    return History(connection, chosen.notes)


def _in_file(file: Path, notes: list[Note]) -> History | None:
    lock = place.Lock(file)
    if not lock.held:
        lock.close()
        notes.append(Note(code="history-held", params={"path": str(file)}))
        return None
    try:
        connection, told = tables.open_to_write(file)
        return History(connection, notes + told, lock)
    except (sqlite3.Error, OSError, tables.NotOursError) as error:
        lock.close()
        notes.append(Note(code="history-lost", params={"detail": str(error)}))
        return None
