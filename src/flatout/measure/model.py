"""Data classes of a run's summary."""

from __future__ import annotations

from typing import Any, ClassVar

from _flatout_agent.wire import TRAINING_PHASES
from flatout.base.records import Missing, Record, Struct, field
from flatout.knobs.model import KnobUse
from flatout.machine.deep_look import DeepLook
from flatout.machine.machine_facts import Machine
from flatout.machine.run_look import DeviceLook, DeviceMix, GpuChange, HostStrain, LoaderUse, Losses, OutOfMemory, ScriptLine
from flatout.measure.auto import AutoTuning
from flatout.measure.delivered import Delivery

NOT_REPORTED = Missing("not-reported")


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
    loaders: list[LoaderUse] = field(default_factory=list)  # that were trained from, the longest wait first
    findings: list[dict[str, Any]] = field(default_factory=list)  # the doctor's, as in `doctor --json`
    bound_by: str = "unknown"  # input, copy, launch, compute, memory, unknown: `measure/bound.py`
    bound_evidence: dict[str, float] = field(default_factory=dict)
    tokens_per_s: float | Missing = NOT_REPORTED
    device: DeviceLook = field(default_factory=DeviceLook)
    losses: Losses = field(default_factory=Losses)
    gpus: list[GpuChange] = field(default_factory=list)  # each card before, during and after
    host: HostStrain = field(default_factory=HostStrain)
    out_of_memory: OutOfMemory | None = None
    device_mix: DeviceMix | None = None
    knobs: list[KnobUse] = field(default_factory=list)  # that were wanted, and what came of each
    deep: DeepLook | None = None  # where it was asked for
    auto: AutoTuning | None = None  # where it was asked for
    promise: Delivery | None = None  # where a profile was put on: what it promises, and what this run gave
    parts: dict[str, float] = field(default_factory=dict)  # of the whole run: seconds that add up to wall_s
    turns: int = 0  # from one epoch to the next
    batches: int = 0  # that the leading process trained on; of several loaders read in step: once
    script_outside_s: float = 0.0  # of the phase `script`: between epochs and after the last step
    script_lines: list[ScriptLine] = field(default_factory=list)  # of the phase `script`: where most of it was spent
    put_on_s: float = 0.0  # of the phase `settings`: putting settings on; the rest is flatout itself

    @property
    def training_s(self) -> float:
        """The steady loop: without start-up, settings, compile, turns of the epoch, validation, checkpoints and the end."""
        return max(0.0, sum(self.phases.get(name, 0.0) for name in TRAINING_PHASES) - self.script_outside_s)

    @property
    def explained(self) -> float:
        """The share of the wall time that has a name."""
        return 1 - self.phases["unexplained"] / self.wall_s if self.wall_s else 1.0
