"""What the search asks for, what it gets back, and what it decides."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from flatout.base.records import Missing, Record, Struct, field
from flatout.knobs.model import Bound, Numerics
from flatout.measure.parity import Parity
from flatout.measure.promise import WholeRunPromise
from flatout.measure.statistics import Window, throughput
from flatout.measure.time_to_loss import LossCurve, TimeToLoss
from flatout.tune.batch.command_line import BatchLine
from flatout.tune.search.time_budget import Budget

Values = dict[str, str]  # knob -> value; a knob that is not in it is as the script has it
Params = dict[str, str | int | float | bool]


class Mode(StrEnum):
    """Where a segment's batches come from."""

    REAL = "real"  # the script's own loader
    REPLAY_HOST = "replay-host"  # kept batches from host memory: the compute floor with the copy
    REPLAY_DEVICE = "replay-device"  # kept batches on the device: without it
    SUPPLY = "supply"  # the script's own loader, drawn from as fast as it gives, with nothing computed: the input ceiling


class Status(StrEnum):
    """How a segment ended."""

    OK = "ok"
    ENDED = "ended"  # the script came to its end; what was timed until then counts
    REFUSED = "refused"  # the agent could not do it at all, the child lives
    CRASH = "crash"
    OOM = "oom"
    HANG = "hang"
    SEGFAULT = "segfault"
    EXIT = "exit"  # os._exit or sys.exit in the middle
    KILLED = "killed"  # by SIGKILL: mostly the system's, which ran out of memory
    LATE = "late"  # given up at the end of the budget: nothing is known of it


FAULTS = frozenset({Status.CRASH, Status.OOM, Status.HANG, Status.SEGFAULT, Status.EXIT, Status.KILLED})


class Segment(Struct, frozen=True, kw_only=True):
    """A stretch of training under given knobs. A runner without a child starts one, whatever `restart` says."""

    id: int
    knobs: Values
    warm_steps: int
    timed_s: float  # timed until this has passed …
    timed_steps: int  # … and so many steps are done
    mode: Mode
    epochs: int = 0  # timed over so many whole epochs, their turns included, instead of by seconds and steps
    restart: bool  # in a fresh child
    stage: str  # for the progress line, with the knobs on trial
    trying: list[str]
    batch: int | None = None  # samples of each replayed batch, put together from kept ones: what another size would cost
    through_epoch: bool = False  # until an epoch has ended: its validation must get through, too
    curve: bool = False  # its losses are wanted, over `timed_s` seconds or `timed_steps` steps, whichever ends first
    seed: int = 0  # added to the script's own, for curves
    limit_s: float | None = None  # from the switch on: then what was timed must do
    give_up_s: float | None = None  # with the start of its child: then it is ended, whatever it does


WAITED = 0.1  # of the time, for the device: no chance any more


class OutcomeState(StrEnum):
    APPLIED = "applied"  # and its effect probe saw it
    ALREADY = "already"  # the script does it itself
    REFUSED = "refused"


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of one knob of a segment."""

    state: OutcomeState
    code: str = ""
    details: Params = field(default_factory=dict)


class SegmentResult(Struct, frozen=True, kw_only=True):
    """What a segment gave. Everything that the search knows comes from these, in their order."""

    id: int
    status: Status
    took_s: float  # in all: a child's start, building, warming and timing
    samples: float = 0.0  # of the timed part, as all below
    seconds: float = 0.0
    steps: int = 0
    aside: dict[str, float] = field(default_factory=dict)  # seconds that were no training on a batch, by their phase
    recurring_s: float = 0.0  # in all that was not in every step: evaluations, checkpoints, logs; not in `seconds` …
    recurring: int = 0  # … and in how many steps it was seen
    centre_s: float | Missing = Missing("too-few-steps")  # of an ordinary step, whatever others did meanwhile
    drained: float = 0.0  # share of its batches that only used up what lay ready before
    phases: dict[str, float] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    classes: dict[str, Numerics] = field(
        default_factory=dict
    )  # milder than the catalogue's, as the agent found for this script
    memory_peak: int | Missing = Missing("not-reported")  # bytes, the agent's own cached batches left out
    memory_allocated: int | Missing = Missing("not-reported")  # of it what tensors held; smoother, and never more
    alloc_retries: int = 0
    epoch_ended: bool = False
    curve: LossCurve | None = None
    device_busy: float | Missing = Missing("not-reported")  # share of the time in which a kernel ran
    starved: float | Missing = Missing("not-reported")  # share of the looks at which the device had run dry at a step's end
    behind_s: float | Missing = Missing("not-reported")  # how far the device was behind the host then, on the average
    build_s: float = 0.0  # spent once: compiling, searching plans
    power_w: float | Missing = Missing("not-reported")  # of the cards, on the average of the segment with its warm-up
    working: float | Missing = Missing("not-reported")  # share of the time in which the driver saw a kernel run, any kernel
    code: str = ""  # why it was refused or failed
    details: Params = field(default_factory=dict)

    @property
    def fault(self) -> bool:
        return self.status in FAULTS

    @property
    def busy(self) -> float | Missing:
        """Of the device, by the best witness there is."""
        if not isinstance(self.device_busy, Missing) or isinstance(self.starved, Missing):
            return self.device_busy
        total = sum(self.phases.values())
        waited = self.phases.get("device_wait", 0.0) / total if total > 0 else 0.0
        # A script that reads its loss every step finds the device dry at each step's end, and yet it waited for it: it worked
        # for that share at least, and for all of the rest at most.
        return max(1.0 - self.starved, (1.0 + waited) / 2 if waited >= WAITED else 0.0)

    @property
    def rate(self) -> float | Missing:
        """That can go on so: what was only used up will not lie there the next time."""
        return throughput([Window((1 - min(1.0, self.drained)) * self.samples, self.seconds)])

    @property
    def ordinary_rate(self) -> float | Missing:
        """Of ordinary steps, where these are known: by it segments are compared."""
        if isinstance(self.centre_s, Missing) or not self.steps or self.centre_s <= 0:
            return self.rate
        return (1 - min(1.0, self.drained)) * self.samples / self.steps / self.centre_s

    @property
    def step_s(self) -> float | Missing:
        return self.seconds / self.steps if self.steps and self.seconds > 0 else Missing("nothing-timed")


def compared_rates(first: SegmentResult, second: SegmentResult) -> tuple[float, float] | None:
    """By which the two are compared: both by their ordinary steps, or both by all of them."""
    known = not isinstance(first.centre_s, Missing) and not isinstance(second.centre_s, Missing)
    one, other = (first.ordinary_rate, second.ordinary_rate) if known else (first.rate, second.rate)
    return (one, other) if isinstance(one, float) and isinstance(other, float) else None


class Verdict(StrEnum):
    KEPT = "kept"
    DROPPED = "dropped"
    NOT_APPLIED = "not-applied"
    UNKNOWN = "unknown"
    FAILED = "failed"
    SKIPPED = "skipped"


class Decision(Struct, frozen=True, kw_only=True):
    """One line of the table: `tune.<code>` in the catalogue of words, with its parameters."""

    knob: str
    value: str
    verdict: Verdict
    code: str
    params: Params = field(default_factory=dict)
    numerics: Numerics
    ratio: float | Missing = Missing("not-measured")
    lower: float | Missing = Missing("not-measured")
    upper: float | Missing = Missing("not-measured")
    pairs: int = 0
    mode: Mode | None = None


class Offer(Struct, frozen=True, kw_only=True):
    """A knob that this machine and script can turn, with the values worth a trial in their order."""

    knob: str
    values: list[str]
    numerics: Numerics
    restart: bool
    cures: list[Bound]
    builds: bool = False  # costs seconds once: tried late, kept where these are repaid
    first_only: bool = False  # the first value that helps ends it (bf16 before fp16)
    foretold: dict[str, Outcome] = field(default_factory=dict)  # by value: what needs no trial, the first look having seen it


class BatchGoal(StrEnum):
    KEEP = "keep"
    FIT = "fit"  # the largest that is safe
    GROW = "grow"  # the fastest


class Plan(Record):
    """All that is decided before the first segment."""

    KIND: ClassVar[str] = "tune-plan"

    offers: list[Offer]
    budget_s: float = 90.0
    whole_runs_follow: bool = False  # which compare what is kept with the plain script, and decide
    steps_planned: int | None = None
    only: list[str] = field(default_factory=list)
    skip: list[str] = field(default_factory=list)
    allow: Numerics = Numerics.TOLERANCE
    worker_cap: int = 0  # by affinity, quota, memory, /dev/shm and file limits
    workers: int = 0  # the script's own
    epoch_steps: int | None = None  # of the script's shortest training loader
    has_loader: bool = True  # the script trains from a DataLoader: else there is no supply to measure and nothing to replay
    batch: BatchGoal = BatchGoal.KEEP
    batch_size: int | None = None  # the script's own; None where it cannot be set
    batch_line: BatchLine | None = None  # how it is set
    batch_too_large: int | None = None  # the script's own, out of memory (0: it does not say); `batch_size` is one that starts
    batch_limit: int = 65536
    memory_limit: int | None = None  # bytes of the device that a training may use
    headroom: float = 0.08  # of the limit; more on Windows, which spills instead of failing
    timed_s: float = 0.5
    warm_steps: int = 4
    start_s: float = 10.0  # of a child, until one was seen
    step_s: float | None = None  # as the first steps of the first child took
    looked_s: float = 0.0  # what the first child took, which is there before the search begins


class Ending(StrEnum):
    TUNED = "tuned"
    FLAT_OUT = "already-flat-out"  # everything was judged and nothing helps
    NOTHING_SHOWN = "nothing-shown"  # nothing was kept, but not everything could be judged
    SMALLER = "smaller-batch"  # nothing was shown beyond the batch at which a script that is too large for the card begins
    NONE_HOLDS = "no-batch-holds"  # of such a script, down to where it began
    BASELINE_FAILS = "baseline-fails"  # the plain script does not get through a segment
    TOO_SHORT = "too-short"  # it ends before anything can be timed
    NOT_WORTH = "too-short-to-repay"  # its loop takes a few seconds: nothing was tried


class Ceilings(Struct, frozen=True, kw_only=True):
    """Samples per second of the last look at the whole: what the loop does, and what its two sides could."""

    real: float | Missing = Missing("not-measured")
    with_copy: float | Missing = Missing("not-measured")  # the compute floor from host memory
    without_copy: float | Missing = Missing("not-measured")
    supply: float | Missing = Missing("not-measured")  # what the loader gives when nothing is computed


class Reached(Struct, frozen=True, kw_only=True):
    """The tuned loop ÷ the lower of its two ceilings, which was measured next to it in each pair of the last comparison."""

    ceiling: Mode
    rate: float  # of that ceiling, samples per second
    ratio: float | Missing
    lower: float | Missing
    upper: float | Missing
    pairs: int


class BatchProbe(Struct, frozen=True, kw_only=True):
    """One size that was tried."""

    size: int
    ran: bool
    peak: int | Missing = Missing("not-reported")
    allocated: int | Missing = Missing("not-reported")
    retries: int = 0
    rate: float | Missing = Missing("not-measured")
    hot: bool = False  # with batches put together in a running child, not by the script's own argument


class BatchStory(Struct, frozen=True, kw_only=True):
    """How the batch size was found; what the command line has to say is added when the search has ended."""

    goal: BatchGoal
    own: int
    size: int  # as kept: `own` where nothing else was
    begun: int | None = None  # with this one, because the script's own runs out of memory
    died: list[int] = field(default_factory=list)  # in the real loop, or took more than they may
    memory_limit: int | None
    headroom: float
    probes: list[BatchProbe]
    proved: BatchProbe | None = None  # in the real loop, by the script's own argument
    epoch_seen: bool = False  # with an epoch's end in it
    road: str = "command"  # or "configuration": `flag` is a key's path there, and so is `rate_flag`
    flag: str = ""
    rate_rule: str = "keep"
    rate_flag: str = ""
    rate_before: str = ""
    rate_after: str = ""
    arguments: dict[str, str] = field(default_factory=dict)  # that the script must be started with from now on
    command: list[str] = field(default_factory=list)  # the whole line
    time_to_loss: TimeToLoss | None = None


class Finished(Record):
    """The end of a search."""

    KIND: ClassVar[str] = "tune-end"

    ending: Ending
    profile: Values
    decisions: list[Decision]
    speedup: float | Missing
    lower: float | Missing
    upper: float | Missing
    baseline: float | Missing  # samples per second, side by side with `final`
    final: float | Missing
    ceilings: Ceilings
    bound_before: Bound | None
    bound_after: Bound | None
    noise: float | Missing
    drift: float  # the worst change of the baseline within one comparison
    throttled: bool
    spent_s: float
    segments: int
    code: str = ""
    params: Params = field(default_factory=dict)
    parity: Parity | None = None  # of what is handed over; None where the gate was not asked
    power_before: float | Missing = Missing("not-reported")  # watts, plain and tuned in the last comparison
    power_after: float | Missing = Missing("not-reported")
    working_before: float | Missing = Missing("not-reported")  # share of the time with a kernel on the card, by the driver
    working_after: float | Missing = Missing("not-reported")
    seconds: float | Missing = Missing("not-measured")  # in all, the first look and parity included
    batch: BatchStory | None = None  # where another batch size was asked for
    raced_s: float = 0.0  # to the same loss, beside the budget
    build_s: dict[str, float] = field(default_factory=dict)  # of what is kept, as it was built first
    unpaid: list[str] = field(default_factory=list)  # of it, what this run does not repay at that price
    budget: Budget | None = None  # for search and confirmation; None in records of older versions
    whole_run: WholeRunPromise | None = None  # None where there was nothing to confirm, and in records of older versions
    reached: Reached | None = None  # None where neither ceiling could be measured in the last comparison


class Progress(Struct, frozen=True, kw_only=True):
    stage: str
    trying: list[str]
    segments_done: int
    segments_left: int  # estimated
    spent_s: float
    left_s: float  # estimated
