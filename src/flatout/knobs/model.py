"""What a knob is."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from flatout.base.records import Struct, field


class Numerics(StrEnum):
    """What turning a knob may do to the numbers of a training."""

    EXACT = "exact"  # the same bits
    RESAMPLED = "resampled"  # the same distribution, other draws
    TOLERANCE = "tolerance"  # rounding differs: accepted only through the parity gate
    TRAINING = "training"  # another training: touched only when asked for


class Switch(StrEnum):
    """When a knob can be turned."""

    HOT = "hot"  # at a step boundary of the running script
    RESTART = "restart"  # only in a fresh process


class Bound(StrEnum):
    """What a loop is held up by, so that the right knobs are tried first."""

    INPUT = "input"
    COPY = "copy"
    LAUNCH = "launch"
    COMPUTE = "compute"
    MEMORY = "memory"


class Knob(Struct, frozen=True, kw_only=True):
    name: str
    domain: tuple[str, ...]  # values it takes, or one range such as "0..64"
    default: str  # what plain PyTorch does; "script" where the script itself always says
    numerics: Numerics  # at worst; the agent may find a milder class for a given script
    switch: Switch
    cures: tuple[Bound, ...]


class Came(StrEnum):
    """What came of a knob in a run."""

    APPLIED = "applied"  # and its effect was seen
    UNPROVED = "unproved"  # put on, but the run ended before its effect could be seen
    REFUSED = "refused"  # not applied, or without effect
    ALREADY = "already"  # so in the script
    TAKEN_BACK = "taken-back"


class KnobUse(Struct, kw_only=True):
    """One knob of a run: what was wanted, by whom, and what came of it (`outcome.<code>` in the catalogue of words)."""

    name: str
    value: str
    source: str  # flag, profile
    came: Came
    code: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    numerics: str = ""  # as found for this script; empty where it was not put on
