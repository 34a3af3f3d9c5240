"""What is wanted of a configuration, what became of it, and the record of the whole."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from flatout.base.records import Missing, Record, Struct, field
from flatout.knobs.model import Numerics
from flatout.measure.parity import Parity
from flatout.measure.statistics import Comparison
from flatout.tune.search.questions_and_answers import Finished, Params, Values


class How(StrEnum):
    ESTIMATED = "estimated"  # derived from what the machine is
    MEASURED = "measured"  # kept by trials inside the running script


class State(StrEnum):
    CHANGED = "changed"
    INSERTED = "inserted"
    ALREADY = "already"
    LEFT = "left"


class Wish(Struct, frozen=True, kw_only=True):
    """A value for a key, by its name in the table; `code` says why, or why it is left (value None)."""

    key: str
    value: bool | int | str | None
    code: str
    params: Params = field(default_factory=dict)
    how: How = How.ESTIMATED


class Change(Struct, kw_only=True):
    """One row of the table: `config-why.<code>` in the catalogue of words, with its parameters."""

    key: str
    path: str  # as it stands in the file, dotted; empty where it does not stand there
    state: State
    before: Any = None
    after: Any = None
    how: How
    code: str
    params: Params = field(default_factory=dict)
    numerics: Numerics


class Ground(Struct, kw_only=True):
    """What the estimates stand on."""

    card: str = ""  # empty without one
    source: str = ""  # nvml, table (asked for by name), none
    missing: str = ""  # why the driver told nothing: `missing.<reason>`
    capability: str = ""
    memory_gib: float = 0.0
    memory_usable_gib: float = 0.0  # the head-room taken off
    preset: str = ""


class Verification(Struct, kw_only=True):
    """The old file against the new one, in fresh children in turn, no knob on either."""

    done: bool
    code: str = ""  # why it was not, or how it failed
    comparison: Comparison | None = None
    old_rate: float | Missing = Missing("not-measured")  # samples per second
    new_rate: float | Missing = Missing("not-measured")
    parity: Parity | None = None  # what is learned with either, where the new one rounds differently
    said: str = ""  # the last line of a script that failed
    unread: list[str] = field(default_factory=list)  # keys that the script gave no sign of having read


class Reading(Struct, kw_only=True):
    """What one value of an explored key costs."""

    value: str
    current: bool
    rates: list[float]
    rate: float | Missing
    memory_peak: int | Missing
    status: str = "ok"


class Explored(Struct, kw_only=True):
    key: str
    path: str
    readings: list[Reading]
    memory_total: int | Missing = Missing("not-reported")


class ConfigOutcome(Record):
    """What `flatout tune --config` did to a configuration."""

    KIND: ClassVar[str] = "config-outcome"

    source: str
    target: str | Missing
    how: How
    changes: list[Change]
    ground: Ground = field(default_factory=Ground)
    profile: Values = field(default_factory=dict)  # kept knobs that no key of this file can say
    verification: Verification = field(default_factory=lambda: Verification(done=False, code="no-command"))
    search: Finished | None = None
    explored: list[Explored] = field(default_factory=list)
