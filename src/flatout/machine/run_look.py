"""Data classes of what was measured in a finished run: processes, GPU, losses.

Everything may be absent: an older agent did not write it, and a training on the processor has no device to tell of.
"""

from __future__ import annotations

from flatout.base.records import Missing, Struct, field

UNKNOWN = Missing("unknown")


class LoaderUse(Struct, kw_only=True, omit_defaults=True):
    """A line of the script that makes a data loader, as the run saw it."""

    site: str | Missing = UNKNOWN  # file:line
    workers: int | Missing = UNKNOWN
    batch_size: int | Missing = UNKNOWN
    pin_memory: bool = False
    persistent_workers: bool = False
    wait_s: float = 0.0  # training waited for its batches
    batches: int = 0  # that were trained on


class ScriptLine(Struct, kw_only=True):
    """A line of the script's own code between the known parts of the loop, and what was spent in it (and in what it calls)."""

    site: str  # file:line
    spent_s: float


class DeviceMemory(Struct, kw_only=True, omit_defaults=True):
    """torch's allocator at the end of the run."""

    allocated_bytes: int | Missing = UNKNOWN
    reserved_bytes: int | Missing = UNKNOWN
    peak_bytes: int | Missing = UNKNOWN  # most that was allocated
    peak_reserved_bytes: int | Missing = UNKNOWN
    total_bytes: int | Missing = UNKNOWN  # of the card
    retries: int = 0  # the card was full: the cache was given back, and asked again
    ooms: int = 0


class MemoryGrowth(Struct, kw_only=True, omit_defaults=True):
    """How the memory in use at the end of a step moved over the run, its first quarter left out."""

    bytes_per_step: float  # the middle of all slopes between two points
    low_bytes_per_step: float  # the lower end of its interval
    significance: float  # of the trend, in standard deviations
    grown_bytes: int
    late_bytes: int  # of it in the second half: what is allocated once and kept does not go on growing
    steps: int
    points: int


class DeviceLag(Struct, kw_only=True, omit_defaults=True):
    """How far the device was behind the host in mid-step, sampled."""

    samples: int
    starved: int  # of them, where it had run dry
    mean_s: float


class DeviceBusy(Struct, kw_only=True, omit_defaults=True):
    busy_s: float
    span_s: float

    @property
    def share(self) -> float:
        return min(1.0, self.busy_s / self.span_s) if self.span_s > 0 else 0.0


class BlockingRead(Struct, kw_only=True, omit_defaults=True):
    """A line of the script that reads a value from the device, and so waits for it."""

    site: str
    what: str  # item, cpu, tolist, numpy, bool …
    total_s: float
    count: int


class Copies(Struct, kw_only=True, omit_defaults=True):
    """Copies from the host to the device."""

    pinned: int = 0
    unpinned: int = 0
    blocking: int = 0
    bytes: int = 0


class Regime(Struct, kw_only=True, omit_defaults=True):
    """In which numbers and on which device the model computes."""

    autocast: bool | Missing = UNKNOWN
    tf32: bool | Missing = UNKNOWN
    dtype: str | Missing = UNKNOWN
    compiled: bool | Missing = UNKNOWN
    device: str | Missing = UNKNOWN  # cuda:0
    capability: str | Missing = UNKNOWN  # "9.0"
    parameters: int | Missing = UNKNOWN


class DeviceLook(Struct, kw_only=True, omit_defaults=True):
    """What the leading process saw of its device."""

    memory: DeviceMemory | None = None
    growth: MemoryGrowth | None = None
    lag: DeviceLag | None = None
    busy: DeviceBusy | None = None
    reads: list[BlockingRead] = field(default_factory=list)  # the costliest first
    copies: Copies | None = None
    regime: Regime | None = None
    cores: CoreUse | None = None
    kernels_per_step: float | Missing = UNKNOWN


class Losses(Struct, kw_only=True, omit_defaults=True):
    """The loss over the run, thinned. Points that are no numbers are counted, because JSON has no way to write them."""

    points: list[tuple[int, float]] = field(default_factory=list)  # (step, loss)
    not_finite: int = 0
    not_finite_from: int | Missing = UNKNOWN  # first step from which on every point is infinite or no number


class Holder(Struct, kw_only=True, omit_defaults=True):
    what: str  # parameters, gradients, optimizer, activations, other
    bytes: int


class OutOfMemory(Struct, kw_only=True, omit_defaults=True):
    """The moment at which the device had no more memory."""

    step: int | Missing = UNKNOWN
    message: str = ""
    memory: DeviceMemory = field(default_factory=DeviceMemory)
    holders: list[Holder] = field(default_factory=list)  # the largest first
    batch: int | Missing = UNKNOWN  # samples in the batch at hand
    fits_batch_estimated: int | Missing = UNKNOWN  # 0 where none would
    try_next: list[str] = field(default_factory=list)  # the command with that batch, where it has a flag for it


class PlacedTensor(Struct, kw_only=True, omit_defaults=True):
    name: str  # model.fc.weight
    device: str


class DeviceMix(Struct, kw_only=True, omit_defaults=True):
    """One operation got tensors on two devices."""

    site: str | Missing = UNKNOWN
    message: str = ""
    tensors: list[PlacedTensor] = field(default_factory=list)


class GpuDuring(Struct, kw_only=True, omit_defaults=True):
    """One card while the script ran: about one look a second, counted and not kept."""

    index: int
    name: str
    uuid: str | Missing = UNKNOWN
    samples: int = 0
    working: int = 0  # looks at which it had work
    held_back: dict[str, int] = field(default_factory=dict)  # reason -> looks at which it worked and was held back by it
    temperature_max_c: int | Missing = UNKNOWN
    sm_clock_max_mhz: int | Missing = UNKNOWN  # that the card could run at
    sm_clock_mhz: float | Missing = UNKNOWN  # mean at work
    sm_clock_held_mhz: int | Missing = UNKNOWN  # lowest while held back
    used_max_bytes: int | Missing = UNKNOWN


class GpuChange(Struct, kw_only=True, omit_defaults=True):
    """One card before and after the run."""

    index: int
    name: str
    used: bool = False  # by this run, as far as can be told
    used_before_bytes: int | Missing = UNKNOWN
    used_after_bytes: int | Missing = UNKNOWN
    temperature_before_c: int | Missing = UNKNOWN
    temperature_after_c: int | Missing = UNKNOWN
    sm_clock_before_mhz: int | Missing = UNKNOWN
    sm_clock_after_mhz: int | Missing = UNKNOWN
    held_before: list[str] = field(default_factory=list)
    held_after: list[str] = field(default_factory=list)
    others_before: list[str] = field(default_factory=list)  # programs on the card: "python (4242)"
    others_after: list[str] = field(default_factory=list)
    during: GpuDuring | None = None


class HostStrain(Struct, kw_only=True, omit_defaults=True):
    """What the whole machine had to do while the script ran."""

    swapped_in_bytes: int | Missing = UNKNOWN
    swapped_out_bytes: int | Missing = UNKNOWN
    io_stalled_s: float | Missing = UNKNOWN  # some program waited for a disk


class CoreUse(Struct, kw_only=True):
    """Whether the training thread and the loaders' workers got a core when they were ready for one."""

    span_s: float
    running_s: float
    queueing_s: float
    workers_running_s: float = 0.0
    workers_queueing_s: float = 0.0
    own_s: float = 0.0  # processor time of the script and its workers, all threads; 0 where it was not told


class RunLook(Struct, kw_only=True, omit_defaults=True):
    """What a finished run says of the program, for the doctor's rules."""

    steps: int | Missing = UNKNOWN
    wall_s: float | Missing = UNKNOWN
    training_s: float | Missing = UNKNOWN
    shares: dict[str, float] = field(default_factory=dict)  # of the training time, by phase
    bound_by: str = "unknown"
    script: str | Missing = UNKNOWN  # what was started
    loaders: list[LoaderUse] = field(default_factory=list)
    device: DeviceLook = field(default_factory=DeviceLook)
    losses: Losses = field(default_factory=Losses)
    gpus: list[GpuChange] = field(default_factory=list)
    host: HostStrain = field(default_factory=HostStrain)
    out_of_memory: OutOfMemory | None = None
    device_mix: DeviceMix | None = None
    knobs: dict[str, str] = field(default_factory=dict)  # settings that flatout put on, or the script has by itself

    @property
    def step_s(self) -> float | None:
        """Seconds of training a step, the first ones included."""
        steps, spent = self.steps, self.training_s
        return spent / steps if isinstance(steps, int) and steps and isinstance(spent, float) else None
