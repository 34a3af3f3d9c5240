"""What a run leaves behind."""

from __future__ import annotations

from typing import ClassVar

from flatout.base.records import Missing, Record, Struct, field
from flatout.machine.model import Machine


class TorchBuild(Struct, kw_only=True):
    version: str | Missing
    cuda: str | None = None
    hip: str | None = None
    import_s: float | None = None


class Note(Struct, kw_only=True):
    """Something the reader must know to read the figures right: a code (`note.<code>` in the catalogue) and its values."""

    code: str
    params: dict[str, str | int | float] = field(default_factory=dict)


class Summary(Record):
    """`summary.json` of a run: where the time went."""

    KIND: ClassVar[str] = "run-summary"

    run_id: str
    command: list[str]
    started: float  # seconds since the epoch
    wall_s: float
    exit_code: int
    signal: int | None
    steps: int
    samples: int | Missing
    samples_per_s: float | Missing  # after the warm-up steps, validation and checkpoints left out
    step_s: float | Missing
    warmup_steps: int
    phases: dict[str, float]  # seconds; they add up to wall_s
    processes: int  # that trained
    torch: TorchBuild
    machine: Machine
    notes: list[Note]

    @property
    def explained(self) -> float:
        """The share of the wall time that has a name."""
        return 1 - self.phases["unexplained"] / self.wall_s if self.wall_s else 1.0
