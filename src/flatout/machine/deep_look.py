"""Data classes of the deep profile: what torch's profiler and sync detection showed in a few steps."""

from __future__ import annotations

from flatout.base.records import Missing, Struct, field
from flatout.machine.run_look import DeviceBusy

UNKNOWN = Missing("not-reported")


class TimedName(Struct, kw_only=True, omit_defaults=True):
    """A kernel, or on the processor an operator, and its part of the time."""

    name: str
    total_s: float
    share: float
    count: int


class SyncSite(Struct, kw_only=True, omit_defaults=True):
    """A line of the script at which the host waits for the device without saying so."""

    site: str
    per_step: float


class HotLine(Struct, kw_only=True, omit_defaults=True):
    site: str
    function: str
    share: float  # of the time inside the dataset


class FetchCost(Struct, kw_only=True, omit_defaults=True):
    """What one sample costs, collating included."""

    dataset: str
    source: str  # __getitem__ or __iter__
    workers: int  # processes that were looked into; 0: the training process itself
    fetched: int  # samples
    per_sample_s: float  # of processor time
    wall_per_sample_s: float
    looks: int = 0
    lines: list[HotLine] = field(default_factory=list)  # the most time first


class Arithmetic(Struct, kw_only=True, omit_defaults=True):
    """Of one step, forward and backward."""

    flops: float
    by_dtype: dict[str, float]  # float32, tf32, bfloat16, float16 …
    bytes_estimated: float  # as if every operator read and wrote memory, and no cache helped


class Ceilings(Struct, kw_only=True, omit_defaults=True):
    """How fast the parts could be, each by itself."""

    cores: float | Missing = UNKNOWN  # that this process may use
    cpu_samples_per_s: float | Missing = UNKNOWN  # that they can supply
    gpu_samples_per_s: float | Missing = UNKNOWN  # that the device could take
    step_s: float | Missing = UNKNOWN  # of the run, without the time of the looks
    flops_per_s: float | Missing = UNKNOWN
    peak_flops_per_s: float | Missing = UNKNOWN  # the card's rated one, for the types in use
    mfu: float | Missing = UNKNOWN  # model FLOPs utilisation: the step at the rated peak / the step
    bytes_per_s_estimated: float | Missing = UNKNOWN
    roofline: float | Missing = UNKNOWN  # the step at the rated compute or bandwidth, whichever takes longer / the step
    memory_limited: bool | Missing = UNKNOWN  # at the rated peaks the bytes take longer than the arithmetic (estimated)


class DeepLook(Struct, kw_only=True, omit_defaults=True):
    steps: int = 0  # that were looked at
    cost_s: float = 0.0  # the run took longer by about this
    device: str | Missing = UNKNOWN  # the card's name
    busy: DeviceBusy | None = None
    busy_per_step_s: float | Missing = UNKNOWN
    kernels_per_step: float | Missing = UNKNOWN
    gaps_per_step: float | Missing = UNKNOWN  # longer than the way from one kernel to the next
    copy_s: float | Missing = UNKNOWN  # of the busy time
    top: list[TimedName] = field(default_factory=list)
    syncs: list[SyncSite] | Missing = UNKNOWN
    fetching: list[FetchCost] = field(default_factory=list)  # the dataset that gave most samples first
    arithmetic: Arithmetic | None = None  # None: `refused["flops"]` says why
    refused: dict[str, str] = field(default_factory=dict)  # look -> why it was not taken
    ceilings: Ceilings = field(default_factory=Ceilings)
