"""Reads a figure over time from the history at the finest resolution that is kept; gaps have a reason."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from flatout.base.records import Missing, Struct
from flatout.watch import tables
from flatout.watch.columns import Column, Kind
from flatout.watch.rolling import COARSE, FINE, RAW, Tier, bucket_of
from flatout.watch.tables import table_of

NOT_KEPT = Missing("not-kept")


class Point(Struct, frozen=True, kw_only=True):
    """A figure over some time: of a single look all three are the same."""

    t: float  # where it begins
    mean: float
    low: float
    high: float
    looks: int = 1


class Over(Struct, frozen=True, kw_only=True):
    mean: float
    low: float
    high: float
    looks: int


class Reader:
    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base

    def names(self, kind: Kind) -> list[str]:
        rows = self._base.execute("SELECT name FROM subjects WHERE kind = ? ORDER BY id", (kind.name,))
        return [str(row[0]) for row in rows]

    def points(self, kind: Kind, name: str, column: str, start: float, end: float) -> list[Point]:
        """In the order of time; each moment once, from the finest tier that has it."""
        subject, wanted = self._subject(kind, name), _column(kind, column)
        if subject is None:
            return []
        found: list[Point] = []
        until = round(end * 1000) + 1
        for tier in (RAW, FINE, COARSE):
            since = round(start * 1000)
            first = self._first(kind, tier)
            if tier is not COARSE and first is not None:
                since = max(since, first)
            if first is None or since >= until:
                continue
            found = self._of(tier, kind, subject, wanted, since, until) + found
            until = since
        return found

    def over(self, kind: Kind, name: str, column: str, start: float, end: float) -> Over | Missing:
        """Mean by looks, lowest and highest."""
        points = self.points(kind, name, column, start, end)
        looks = sum(point.looks for point in points)
        if not looks:
            return self.why(kind, name, column, end)
        return Over(
            mean=sum(point.mean * point.looks for point in points) / looks,
            low=min(point.low for point in points),
            high=max(point.high for point in points),
            looks=looks,
        )

    def why(self, kind: Kind, name: str, column: str, t: float) -> Missing:
        """The reason that held last at `t`."""
        told = self.constant(kind, name, column, t)
        return told if isinstance(told, Missing) else NOT_KEPT

    def constant(self, kind: Kind, name: str, constant: str, t: float) -> Any:
        subject = self._subject(kind, name)
        row = self._base.execute(
            "SELECT value FROM changes WHERE subject = ? AND name = ? AND t <= ? ORDER BY t DESC LIMIT 1",
            (subject, constant, round(t * 1000)),
        ).fetchone()
        value = None if row is None else json.loads(row[0])
        if row is None:
            return NOT_KEPT
        return Missing(str(value["reason"])) if isinstance(value, dict) and "reason" in value else value

    def _of(self, tier: Tier, kind: Kind, subject: int, column: Column, since: int, until: int) -> list[Point]:
        table = table_of(kind, tier)
        if not tier.width_ms or column.bits:
            mean = low = high = column.name
            looks = "n" if tier.width_ms else "1"
        else:
            mean, low, high = (f"{column.name}_{part}" for part in ("mean", "low", "high"))
            looks = "n"
        rows = self._base.execute(
            f"SELECT t, {mean}, {low}, {high}, {looks} FROM {table}"
            f" WHERE t >= ? AND t < ? AND subject = ? AND {mean} IS NOT NULL ORDER BY t",
            (since, until, subject),
        )
        scale = column.scale or 1
        return [
            Point(t=t / 1000, mean=middle / scale, low=lowest / scale, high=highest / scale, looks=int(count))
            for t, middle, lowest, highest, count in rows
        ]

    def _first(self, kind: Kind, tier: Tier) -> int | None:
        """From where on this tier is read: at a border of the coarser one, so that no moment is counted in both."""
        (first,) = self._base.execute(f"SELECT min(t) FROM {table_of(kind, tier)}").fetchone()
        coarser = {RAW.name: FINE, FINE.name: COARSE}.get(tier.name)
        if first is None or coarser is None:
            return None if first is None else int(first)
        border = bucket_of(coarser, int(first))
        there = self._base.execute(f"SELECT 1 FROM {table_of(kind, coarser)} WHERE t = ? LIMIT 1", (border,)).fetchone()
        return int(first) if there is None or border == first else border + coarser.width_ms

    def _subject(self, kind: Kind, name: str) -> int | None:
        row = self._base.execute("SELECT id FROM subjects WHERE kind = ? AND name = ?", (kind.name, name)).fetchone()
        return None if row is None else int(row[0])


def _column(kind: Kind, name: str) -> Column:
    found = next((column for column in kind.columns if column.name == name), None)
    if found is None:
        raise KeyError(f"{kind.name}.{name}")
    return found


def open_reader(file: Path) -> Reader:
    """Beside whoever writes. `tables.NotOursError`, `sqlite3.Error`: there is nothing to be read."""
    return Reader(tables.open_to_read(file))
