"""Imagined machines: true costs per phase with their interactions, noise and faults. A search sees segments, we the truth."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from itertools import product

from flatout.base.records import replace
from flatout.knobs.model import Bound, Numerics
from flatout.measure.statistics import Window
from flatout.measure.time_to_loss import LossCurve
from flatout.tune.search.questions_and_answers import Finished, Mode, Offer, Outcome, OutcomeState, Plan, SegmentResult, Status
from flatout.tune.search.search import Search

TOLERANCE, EXACT, RESAMPLED, TRAINING = Numerics.TOLERANCE, Numerics.EXACT, Numerics.RESAMPLED, Numerics.TRAINING


def offer(knob, values, numerics=TOLERANCE, cures=(Bound.COMPUTE,), **more):
    return Offer(
        knob=knob, values=list(values), numerics=numerics, restart=more.pop("restart", False), cures=list(cures), **more
    )


OFFERS = [
    offer("precision", ["bf16"], cures=[Bound.COMPUTE, Bound.MEMORY], first_only=True),
    offer("tf32", ["on"]),
    offer("channels_last", ["on"], cures=[Bound.COMPUTE, Bound.MEMORY]),
    offer("fused_optimizer", ["on"], cures=[Bound.LAUNCH, Bound.MEMORY]),
    offer("cudnn_benchmark", ["on"], restart=True),
    offer("compile", ["default", "reduce-overhead", "graphs"], cures=[Bound.LAUNCH, Bound.COMPUTE], builds=True),
    offer("workers", [], RESAMPLED, [Bound.INPUT]),
    offer("pin_memory", ["on"], EXACT, [Bound.COPY, Bound.INPUT]),
    offer("batch_size", [], TRAINING, [Bound.LAUNCH, Bound.COMPUTE], restart=True),
]


APPLIED = Outcome(state=OutcomeState.APPLIED)
LIVE = Outcome(state=OutcomeState.APPLIED, details={"turns_known": True})


@dataclass
class Machine:
    """Costs of one batch of `batch` samples in milliseconds, for the plain script."""

    batch: int = 32
    prepare: float = 2.0  # by one core
    cores: int = 8
    copy: float = 0.3
    launch: float = 4.0  # of the host
    device: float = 10.0  # of the card
    bf16: float = 0.55  # factors on the card's part
    bf16_launch: float = 1.12
    tf32: float = 0.8
    nhwc: float = 0.97
    nhwc_bf16: float = 0.8
    bench: float = 0.93
    fused_launch: float = 0.85
    compiled: float = 0.85
    compiled_launch: float = 0.5
    graphs_launch: float = 0.03
    build_s: float = 15.0
    build_told: float = 1.0  # of it: a compiler tells of its own work alone
    rebuild: float = 0.3  # of it, once the compiler's cache is filled
    start_s: float = 3.0
    looked: bool = False  # the first child was started for a first look, and is there
    switch_s: float = 0.0  # to another number of workers
    contention: float = 0.0  # how much longer launching takes beside as many workers as there are cores
    sigma: float = 0.008
    drift: float = 0.0
    fall_at: int | None = None
    seed: int = 1
    memory_base: float = 1e9
    memory_per_sample: float = 4e7
    memory_limit: float = 6e9
    oom_share: float = 0.97
    replays: bool = True
    epoch_steps: int | None = None
    turn_s: float = 0.4  # from one epoch to the next where workers are started for each
    live: bool = False  # workers stay alive over the turn without a knob
    supplies: bool = True  # the loader's batches can be drawn without training on them
    knows_busy: bool = True
    last_kernel: float | None = None  # milliseconds: such a device looks busy whenever a step ends
    faults: dict = field(default_factory=dict)  # (knob, value) -> Status
    flaky: float = 0.0  # chance that a segment of any kind crashes
    refuses: dict = field(default_factory=dict)  # knob, or (knob, value) -> Outcome
    script_s: float = math.inf  # what one child lasts
    hang_s: float = 20.0
    plans_s: float = 0.0  # for each new size of a batch, before its first step
    composes: bool = True  # batches of another size can be put together in a running child
    hot_excess: float = 1.0  # what such a batch reserves beyond the real one
    learns: float = 1.0  # how a step's worth grows with the batch: 1 in proportion, 0 not at all

    # -- the truth ------------------------------------------------------------------------------------------------

    def outcome(self, knob, value):
        applied = LIVE if knob == "workers" and self.live else APPLIED
        return self.refuses.get((knob, value), self.refuses.get(knob, applied))

    def step_ms(self, knobs):
        """Host and card of one step: the card waits for launches, or they for it."""
        size = int(knobs.get("batch_size", self.batch)) / self.batch
        launch, card = self.launch, self.device * (0.25 + 0.75 * size)
        bf16, compiled = knobs.get("precision") == "bf16", knobs.get("compile", "no")
        if bf16:
            card, launch = card * self.bf16, launch * self.bf16_launch
        elif knobs.get("tf32") == "on":
            card *= self.tf32
        if knobs.get("channels_last") == "on":
            card *= self.nhwc_bf16 if bf16 else self.nhwc
        if knobs.get("cudnn_benchmark") == "on":
            card *= self.bench
        if knobs.get("fused_optimizer") == "on":
            launch *= self.fused_launch
        if compiled not in ("no", "graphs"):
            card *= self.compiled
        if compiled != "no":
            launch *= self.compiled_launch if compiled == "default" else self.graphs_launch
        return launch, card

    def rate(self, knobs, mode=Mode.REAL):
        """Samples per second without noise."""
        size = int(knobs.get("batch_size", self.batch))
        launch, card = self.step_ms(knobs)
        if mode is Mode.REAL:
            launch *= 1 + self.contention * int(knobs.get("workers", "0")) / self.cores
        step = max(launch, card) + 0.1 * min(launch, card)
        copy = self.copy * size / self.batch * (0.4 if knobs.get("pin_memory") == "on" else 1.0)
        if mode is Mode.REPLAY_DEVICE:
            return 1000 * size / step
        if mode is Mode.REPLAY_HOST:
            return 1000 * size / (step + copy)
        workers = int(knobs.get("workers", "0"))
        prepare = self.prepare * size / self.batch
        if workers == 0:
            return 1000 * size / (prepare + (0.0 if mode is Mode.SUPPLY else copy + step))
        crowding = max(1.0, (workers + 1) / self.cores) ** 0.3
        supply = prepare * 1.05 / min(workers, self.cores) * crowding
        return 1000 * size / max(supply, 0.0 if mode is Mode.SUPPLY else step + copy)

    def seen_of_the_device(self, launch, card):
        if self.last_kernel is not None:
            behind = self.last_kernel if launch > card else 5 * (card - launch)  # between two waits of the script
            return {"starved": 0.0, "behind_s": behind / 1000}
        if not self.knows_busy:
            return {}
        return {"device_busy": card / (max(launch, card) + 0.1 * min(launch, card))}

    def peak(self, knobs):
        per = self.memory_per_sample * (0.6 if knobs.get("precision") == "bf16" else 1.0)
        return self.memory_base + per * int(knobs.get("batch_size", self.batch))

    def optimum(self, plan, workers=range(33)):
        """The best of the full factorial over all that the plan offers."""
        names = [o for o in plan.offers if o.values]
        choices = [[None, *o.values] for o in names]
        best = 0.0
        for combination in product(*choices):
            knobs = {o.knob: value for o, value in zip(names, combination, strict=True) if value is not None}
            if any(key in self.faults or key in self.refuses or key[0] in self.refuses for key in knobs.items()):
                continue
            for count in workers if any(o.knob == "workers" for o in plan.offers) else [0]:
                if count <= plan.worker_cap and ("workers", str(count)) not in self.faults:
                    best = max(best, self.rate({**knobs, "workers": str(count)}))
        return best

    # -- what a search sees ---------------------------------------------------------------------------------------

    def runner(self):
        return Runner(self)


class Runner:
    """Answers segments; its noise depends on the segment's number alone, so a resumed search sees the same world."""

    def __init__(self, machine):
        self.machine = machine
        self.built = set()
        self.planned = {machine.batch}
        self.cached = set()
        self.age = 0.0
        self.workers = "0"

    def draw(self, segment):
        return random.Random(self.machine.seed * 100_003 + segment.id)

    def run(self, segment):
        machine, draw = self.machine, self.draw(segment)
        took = 0.0
        if segment.restart:
            there = machine.looked and segment.id == 1
            self.built, self.age, took = set(), 0.0, 0.0 if there else machine.start_s
        if segment.curve:
            return SegmentResult(
                id=segment.id, status=Status.OK, took_s=took + segment.timed_s, curve=self.curve(segment, draw)
            )
        if segment.batch is not None:
            if not machine.composes:
                return SegmentResult(id=segment.id, status=Status.REFUSED, took_s=0.1, code="batches-do-not-add-up")
            took += machine.plans_s * (segment.batch not in self.planned)
            self.planned.add(segment.batch)
            segment = replace(segment, knobs={**segment.knobs, "batch_size": str(segment.batch)})
        if segment.mode is Mode.SUPPLY and not machine.supplies:
            return SegmentResult(id=segment.id, status=Status.REFUSED, took_s=0.1, code="epoch-too-short")
        if segment.mode not in (Mode.REAL, Mode.SUPPLY) and not machine.replays:
            return SegmentResult(id=segment.id, status=Status.REFUSED, took_s=0.1, code="shapes-vary")
        status = self.fault(segment, draw)
        if status is not None:
            wait = machine.hang_s if status is Status.HANG else 0.7
            return SegmentResult(id=segment.id, status=status, took_s=took + wait)
        active = {k: v for k, v in segment.knobs.items() if not {k, (k, v)} & machine.refuses.keys()}
        if segment.mode in (Mode.REAL, Mode.SUPPLY):
            took += machine.switch_s * (active.get("workers", "0") != self.workers)
            self.workers = active.get("workers", "0")
        build = self.build(active)
        return self.timed(segment, active, draw, took, build)

    def curve(self, segment, draw):
        """A loss that falls with every step, by so much as the batch is worth."""
        machine = self.machine
        size = int(segment.knobs.get("batch_size", machine.batch))
        step_s = size / machine.rate(segment.knobs)
        steps = min(segment.timed_steps, int(segment.timed_s / step_s))
        worth = 0.002 * (size / machine.batch) ** machine.learns
        losses = [2 * math.exp(-worth * step) + 0.5 + draw.gauss(0, 0.02) for step in range(steps)]
        return LossCurve(seconds=[step_s * (step + 1) for step in range(steps)], losses=losses)

    def fault(self, segment, draw):
        machine = self.machine
        found = [s for (k, v), s in machine.faults.items() if segment.knobs.get(k) == v]
        if found:
            return found[0]
        if "batch_size" in segment.knobs and machine.peak(segment.knobs) > machine.oom_share * machine.memory_limit:
            return Status.OOM
        return Status.CRASH if draw.random() < machine.flaky else None

    def build(self, active):
        mode = active.get("compile")
        wanted = (mode, active.get("precision"), active.get("channels_last"), active.get("batch_size"))
        if mode is None or wanted in self.built:
            return 0.0
        self.built.add(wanted)
        if mode == "graphs":
            return 0.2
        known, self.cached = wanted in self.cached, self.cached | {wanted}
        return self.machine.build_s * (self.machine.rebuild if known else 1.0)

    def timed(self, segment, active, draw, took, build):
        machine = self.machine
        size = int(active.get("batch_size", machine.batch))
        rate = machine.rate(active, segment.mode) * math.exp(self.noise(segment, draw))
        step_s = size / rate
        steps = max(segment.timed_steps, math.ceil(segment.timed_s / step_s))
        if segment.limit_s is not None:
            steps = max(min(2, segment.timed_steps), min(steps, int(segment.limit_s / step_s) - segment.warm_steps))
        if segment.epochs:
            steps = segment.epochs * machine.epoch_steps
            restarts = int(active.get("workers", "0")) and active.get("persistent_workers") != "on" and not machine.live
            step_s += machine.turn_s * restarts / machine.epoch_steps if restarts else 0.0
        whole = (segment.warm_steps + steps) * step_s
        if segment.give_up_s is not None and took + build + whole > segment.give_up_s:
            return SegmentResult(id=segment.id, status=Status.LATE, took_s=segment.give_up_s)
        status = Status.OK
        if self.age + whole > machine.script_s:
            status = Status.ENDED
            steps = max(0, int((machine.script_s - self.age) / step_s) - segment.warm_steps)
        self.age += whole
        launch, card = machine.step_ms(active)
        windows = [Window(size * steps / 4, step_s * steps / 4)] * 4 if steps else []
        return SegmentResult(
            id=segment.id,
            status=status,
            took_s=took + build + whole,
            samples=size * steps,
            seconds=steps * step_s,
            steps=steps,
            phases={"input": machine.prepare, "forward": launch, "copy": machine.copy},
            windows=windows,
            outcomes={k: machine.outcome(k, v) for k, v in segment.knobs.items()},
            memory_peak=int(machine.peak(active) * (1 if segment.batch is None else machine.hot_excess)),
            **machine.seen_of_the_device(launch, card),
            build_s=build * machine.build_told,
        )

    def noise(self, segment, draw):
        """White, heavy-tailed, and with a drift; memory between segments would need their history."""
        machine = self.machine
        chi = sum(draw.gauss(0, 1) ** 2 for _ in range(4)) / 4
        stall = -abs(draw.gauss(0, 5 * machine.sigma)) if draw.random() < 0.02 else 0.0
        fallen = -0.12 if machine.fall_at is not None and segment.id >= machine.fall_at else 0.0
        return machine.sigma * draw.gauss(0, 1) / math.sqrt(2 * chi) + stall + machine.drift * segment.id + fallen


def plan(**changes):
    settings = {"offers": list(OFFERS), "budget_s": 240.0, "worker_cap": 16, "timed_s": 0.3}
    settings.update(changes)
    return Plan(**settings)


def search(machine, wanted, limit=600):
    """The end of a search on this machine, with every segment and result."""
    runner, found, results, segments = machine.runner(), Search(wanted), [], []
    while True:
        step = found.next(results)
        if isinstance(step, Finished):
            return step, segments, results
        segments.append(step)
        results.append(runner.run(step))
        assert len(results) < limit, "the search does not end"
