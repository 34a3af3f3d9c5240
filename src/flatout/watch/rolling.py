"""Averages samples to means, lowest and highest of ten seconds and of five minutes. Pure."""

from __future__ import annotations

from typing import Any

from flatout.base.records import Struct
from flatout.watch.columns import Kind

MS = 1000


class Tier(Struct, frozen=True, kw_only=True):
    name: str
    width_ms: int  # of a bucket; 0 for what is kept as it came
    kept_ms: int


RAW = Tier(name="raw", width_ms=0, kept_ms=3600 * MS)
FINE = Tier(name="fine", width_ms=10 * MS, kept_ms=12 * 3600 * MS)
COARSE = Tier(name="coarse", width_ms=300 * MS, kept_ms=60 * 24 * 3600 * MS)
TIERS = (RAW, FINE, COARSE)

Stored = float | int | None


class Gathered:
    """One column within one bucket. Figures that were not given do not count."""

    __slots__ = ("bits", "high", "low", "number", "total")

    def __init__(self) -> None:
        self.number = 0
        self.total = 0.0
        self.low: Stored = None
        self.high: Stored = None
        self.bits = 0

    def add(self, value: Stored) -> None:
        if value is None:
            return
        self.number += 1
        self.total += value
        self.low = value if self.low is None else min(self.low, value)
        self.high = value if self.high is None else max(self.high, value)
        if isinstance(value, int):
            self.bits |= value


class Bucket:
    """All columns of one thing within one bucket."""

    def __init__(self, kind: Kind, start_ms: int) -> None:
        self._kind = kind
        self.start_ms = start_ms
        self.number = 0
        self._columns = [Gathered() for _ in kind.columns]

    def add(self, values: list[Stored]) -> None:
        self.number += 1
        for column, value in zip(self._columns, values, strict=True):
            column.add(value)

    def row(self) -> list[Stored]:
        """For each column its mean, lowest and highest; for flags all that were set, once."""
        found: list[Stored] = []
        for column, gathered in zip(self._kind.columns, self._columns, strict=True):
            if column.bits:
                found.append(gathered.bits if gathered.number else None)
                continue
            mean = gathered.total / gathered.number if gathered.number else None
            whole = mean is not None and column.scale
            found += [round(mean) if whole and mean is not None else mean, gathered.low, gathered.high]
        return found


def stored(kind: Kind, values: dict[str, Any]) -> list[Stored]:
    """Of a sample: what goes into the columns. None where there is no figure."""
    found: list[Stored] = []
    for column in kind.columns:
        value = values.get(column.name)
        number = value if isinstance(value, int | float) and value == value and abs(value) < 1e300 else None
        found.append(number if number is None or not column.scale else round(number * column.scale))
    return found


def joined(kind: Kind, one: list[Stored], number: int, other: list[Stored], others: int) -> list[Stored]:
    """Two rows of the same bucket, which a restart or a clock that was set has cut in two."""
    found: list[Stored] = []
    place = 0
    for column in kind.columns:
        if column.bits:
            found.append(_either(one[place], other[place], lambda a, b: int(a) | int(b)))
            place += 1
            continue
        mean = _either(one[place], other[place], lambda a, b: (a * number + b * others) / max(1, number + others))
        found.append(round(mean) if mean is not None and column.scale else mean)
        found.append(_either(one[place + 1], other[place + 1], min))
        found.append(_either(one[place + 2], other[place + 2], max))
        place += 3
    return found


def _either(one: Stored, other: Stored, both: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return both(one, other)


def bucket_of(tier: Tier, t_ms: int) -> int:
    return t_ms - t_ms % tier.width_ms
