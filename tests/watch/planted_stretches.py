"""Trainings as they might be, second by second: noise with a memory, work that comes periodically, drift, and planted causes.

What a planted cause costs is noted while it is planted, so that its true share is known.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from flatout.watch.moments import Moment, Seen, Span

START = 1_760_000_000.0
PARTS = {
    "input": 0.06,
    "copy": 0.02,
    "forward": 0.24,
    "backward": 0.40,
    "optimizer": 0.08,
    "device_wait": 0.10,
    "script": 0.10,
}
WORK = [name for name in PARTS if name != "input"]


@dataclass
class Planted:
    """From one second to another; `by`: how much of a usual step it adds (or, for clocks, what the clock is multiplied by)."""

    cause: str
    first: int
    last: int
    by: float


@dataclass
class Trace:
    moments: list[Moment]
    cost: dict[str, float] = field(default_factory=dict)  # seconds, by cause, inside its stretch

    def shares(self):
        whole = sum(self.cost.values())
        return {name: cost / whole for name, cost in self.cost.items()}


@dataclass
class Noise:
    """Of one run, chosen by its seed."""

    dice: random.Random
    step_s: float
    spread: float
    memory: float
    drift: float
    wave: float
    wave_length: float
    spikes: float
    validation: tuple[int, float]
    checkpoint: tuple[int, float]
    neighbour: bool
    power_bound: bool

    @classmethod
    def of(cls, seed):
        dice = random.Random(seed)
        return cls(
            dice=dice,
            step_s=10 ** dice.uniform(-2.5, -0.5),
            spread=10 ** dice.uniform(-2.3, -1.2),
            memory=dice.uniform(0, 0.7),
            drift=dice.uniform(-0.08, 0.08),
            wave=dice.uniform(0, 0.03),
            wave_length=dice.uniform(60, 400),
            spikes=dice.choice([0, 0.01, 0.03]),
            validation=(dice.choice([0, 30, 57, 120]), dice.uniform(1, 12)),
            checkpoint=(dice.choice([0, 25, 100]), dice.uniform(0.2, 4)),
            neighbour=dice.random() < 0.3,
            power_bound=dice.random() < 0.4,
        )


CALM = {"spread": 0.02, "memory": 0.4, "drift": 0.02, "wave": 0.01, "spikes": 0.01}


def make(seed=0, seconds=300, planted=(), **fixed):
    noise = Noise.of(seed)
    for name, value in fixed.items():
        setattr(noise, name, value)
    moments, cost, walk, now = [], {}, 0.0, START
    for second in range(seconds):
        walk = noise.memory * walk + noise.dice.gauss(0, noise.spread * math.sqrt(1 - noise.memory**2))
        active = [one for one in planted if one.first <= second < one.last]
        moment, costs = _moment(noise, second, seconds, walk, active, now)
        moments.append(moment)
        now = moment.span.end
        for name, value in costs.items():
            cost[name] = cost.get(name, 0.0) + value
    return Trace(moments, cost)


def _moment(noise, second, seconds, walk, active, now):
    dice = noise.dice
    slow = 1 + noise.drift * second / seconds + noise.wave * math.sin(2 * math.pi * second / noise.wave_length)
    slow *= math.exp(walk)
    if dice.random() < noise.spikes:
        slow *= dice.uniform(1.5, 4)
    steps = max(1, round(1 / noise.step_s))
    parts = {name: share * noise.step_s * steps * (slow if name != "input" else 1) for name, share in PARTS.items()}
    parts["input"] *= dice.lognormvariate(0, 0.5)
    parts["validation"] = noise.validation[1] if noise.validation[0] and second % noise.validation[0] == 17 else 0.0
    parts["checkpoint"] = noise.checkpoint[1] if noise.checkpoint[0] and second % noise.checkpoint[0] == 9 else 0.0
    seen = {
        "clock_mhz": 1755 + dice.gauss(0, 8),
        "temperature_c": 64 + 6 * second / seconds + dice.gauss(0, 0.5),
        "power_w": 600 + dice.gauss(0, 10),
        "utilisation": 95.0 + dice.gauss(0, 1),
        "held": {"SW_POWER_CAP": 1.0} if noise.power_bound and dice.random() < 0.7 else {},
        "memory_share": 0.6,
        "others": {"python3 (4242)": 1.0} if noise.neighbour else {},
        "others_busy": max(0.0, dice.gauss(8, 2)) if noise.neighbour else 0.0,
        "swap_bytes_s": dice.choice([0.0, 0.0, 0.0, 4096.0]),
        "io_stalled": abs(dice.gauss(0, 0.01)),
        "cpu_percent": min(100.0, max(0.0, dice.gauss(40, 5))),
    }
    more = {"retries": 0, "gc_s": 0.002 * dice.random()}
    costs = {}
    for one in active:
        before = sum(parts.values())
        EFFECTS[one.cause](one, noise, steps, parts, seen, more)
        costs[one.cause] = sum(parts.values()) - before
    length = sum(parts.values())
    span = Span(start=now, end=now + length, steps=steps, samples=8 * steps, phases=parts, **more)
    return Moment(span=span, seen=Seen(**seen)), costs


# -- what can be planted ----------------------------------------------------------------------------------------------------


def _slower(parts, factor):
    for name in WORK:
        parts[name] *= factor


def _clock(one, parts, seen):
    seen["clock_mhz"] *= one.by
    _slower(parts, 1 / one.by)


def thermal(one, noise, steps, parts, seen, more):
    _clock(one, parts, seen)
    seen["held"] = {**seen["held"], "HW_THERMAL_SLOWDOWN": 0.9}
    seen["temperature_c"] = 91.0


def power(one, noise, steps, parts, seen, more):
    _clock(one, parts, seen)
    seen["held"] = {**seen["held"], "HW_POWER_BRAKE_SLOWDOWN": 1.0}


def clocks(one, noise, steps, parts, seen, more):
    _clock(one, parts, seen)


def memory_bound_thermal(one, noise, steps, parts, seen, more):
    """Half of the work does not care for the clock."""
    seen["clock_mhz"] *= one.by
    seen["held"] = {"SW_THERMAL_SLOWDOWN": 1.0}
    _slower(parts, 0.5 + 0.5 / one.by)


def neighbour(one, noise, steps, parts, seen, more):
    seen["others"] = {**seen["others"], "python3 (777)": 1.0}
    seen["others_busy"] += 45.0
    _slower(parts, 1 + one.by)


def data(one, noise, steps, parts, seen, more):
    parts["input"] += one.by * noise.step_s * steps
    seen["utilisation"] -= 40.0
    seen["clock_mhz"] *= 0.8  # a consequence: the card has less to do


def storage(one, noise, steps, parts, seen, more):
    data(one, noise, steps, parts, seen, more)
    seen["io_stalled"] += 0.5


def cpu(one, noise, steps, parts, seen, more):
    data(one, noise, steps, parts, seen, more)
    seen["cpu_percent"] = 99.0


def retries(one, noise, steps, parts, seen, more):
    more["retries"] += 2 * steps
    seen["memory_share"] = 0.96
    _slower(parts, 1 + one.by)


def full(one, noise, steps, parts, seen, more):
    seen["memory_share"] = 0.99
    _slower(parts, 1 + one.by)


def checkpoints(one, noise, steps, parts, seen, more):
    parts["checkpoint"] += one.by * noise.step_s * steps


def validations(one, noise, steps, parts, seen, more):
    parts["validation"] += one.by * noise.step_s * steps


def collections(one, noise, steps, parts, seen, more):
    spent = one.by * noise.step_s * steps
    more["gc_s"] += spent
    parts["script"] += spent / 2
    parts["forward"] += spent / 2


def swapping(one, noise, steps, parts, seen, more):
    seen["swap_bytes_s"] += 60e6
    seen["utilisation"] -= 40.0
    seen["clock_mhz"] *= 0.9  # a consequence
    _slower(parts, 1 + one.by)
    parts["input"] *= 1 + 3 * one.by


def compiling(one, noise, steps, parts, seen, more):
    parts["compile"] = parts.get("compile", 0.0) + one.by * noise.step_s * steps


def nothing(one, noise, steps, parts, seen, more):
    _slower(parts, 1 + one.by)


EFFECTS = {
    "thermal-slowdown": thermal,
    "power-slowdown": power,
    "low-clocks": clocks,
    "memory-bound-thermal": memory_bound_thermal,
    "another-process": neighbour,
    "waiting-for-data": data,
    "slow-storage": storage,
    "cpu-contended": cpu,
    "allocator-retries": retries,
    "memory-full": full,
    "checkpoint": checkpoints,
    "validation": validations,
    "garbage-collection": collections,
    "host-swapping": swapping,
    "compiling": compiling,
    "not-seen": nothing,
}
