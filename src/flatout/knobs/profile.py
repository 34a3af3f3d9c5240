"""A profile: settings that were measured for one script on one machine, and how to tell whether this is still it."""

from __future__ import annotations

from typing import ClassVar

from flatout.base.records import Record, Struct, field

KIND = "flatout-profile"


class Provenance(Struct, kw_only=True):
    """Where the values come from. A profile written by hand has none of it."""

    command: list[str] = field(default_factory=list)
    date: str = ""  # ISO 8601
    ratio: float | None = None  # throughput with these values to that of the plain script
    low: float | None = None  # the interval of the ratio
    high: float | None = None


class Fingerprint(Struct, kw_only=True):
    """What the values were measured on; an empty part was not known and is not compared."""

    script: str = ""  # SHA-256 of its file
    torch: str = ""
    driver: str = ""
    card: str = ""  # its name, or CPU
    shapes: list[str] = field(default_factory=list)  # of the batches: "32x3x224x224"


class Promise(Struct, kw_only=True):
    """What whole runs gave before the profile was written; empty in older profiles and in those written by hand."""

    speedup: float | None = None  # seconds of the plain run for each second under the profile
    low: float | None = None
    high: float | None = None
    plain_s: float | None = None  # of the planned run
    tuned_s: float | None = None
    epochs: float = 1.0  # that the parts below are for
    unit: str = "epoch"  # or steps: a stretch of them, where there is no loader
    batches: int | None = None  # of one epoch
    put_on_step: int | None = None  # after which the settings come on
    plain_step_s: float | None = None  # of the steady plain loop
    put_off_saves_s: float = 0.0  # in a step, what comes on later
    put_off: dict[str, int] = field(default_factory=dict)  # settings that cost time once: the step after which they come on
    plain: dict[str, float] = field(default_factory=dict)  # seconds by part
    tuned: dict[str, float] = field(default_factory=dict)


class Profile(Record):
    """`flatout.toml`. The values are spelled as in the catalogue."""

    KIND: ClassVar[str] = KIND

    knobs: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)  # of the script itself: "--batch-size" -> "64"
    provenance: Provenance = field(default_factory=Provenance)
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    promise: Promise = field(default_factory=Promise)


class Difference(Struct, frozen=True, kw_only=True):
    part: str  # script, torch, driver, card, shapes
    recorded: str
    here: str


def differences(recorded: Fingerprint, here: Fingerprint) -> list[Difference]:
    """Where this is not what the profile was made for. What is not known here cannot be taken for the same."""
    found = []
    for part in ("script", "torch", "driver", "card"):
        wanted, present = getattr(recorded, part), getattr(here, part)
        if wanted and wanted != present:
            found.append(Difference(part=part, recorded=wanted, here=present))
    # Shapes are seen only once batches flow: before that nothing can be said of them.
    if recorded.shapes and here.shapes and recorded.shapes != here.shapes:
        found.append(Difference(part="shapes", recorded=", ".join(recorded.shapes), here=", ".join(here.shapes)))
    return found
