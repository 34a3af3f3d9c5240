"""Step times as scripts have them: recorded ones (`*.json` beside this file), and made ones of the kinds that were met.

A recorded trace is `{"script": …, "step_times": [seconds], "step_waits": [seconds]}`: how long each step took, and how much of
it the loop waited for its batch. `record.py` makes one of any script.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
BUSY = HERE / "busy"


@dataclass
class Trace:
    name: str
    ordinary: list[float]  # seconds of each step without its wait and what is not in every step
    waits: list[float] = field(default_factory=list)
    extra: list[float] = field(default_factory=list)  # evaluation, checkpoint, log: no setting on trial changes it

    def __post_init__(self):
        self.waits = self.waits or [0.0] * len(self.ordinary)
        self.extra = self.extra or [0.0] * len(self.ordinary)


def recorded(folder=HERE):
    """Of scripts in ten styles, on two cores that others used as well. Those in `busy` had eight programs beside them: a step
    takes now one and now ten times as long, and a tenth was found there in one of three searches."""
    found = []
    for path in sorted(folder.glob("*.json")):
        told = json.loads(path.read_text())
        own = [max(0.0, time - wait) for time, wait in zip(told["step_times"], told["step_waits"], strict=True)]
        usual = 2 * median(own)
        ordinary, extra = [min(one, usual) for one in own], [max(0.0, one - usual) for one in own]
        found.append(Trace(told["script"], ordinary, told["step_waits"], extra))
    return found


def made():
    return [
        periodic("an evaluation of 4 s each 250 steps of 15 ms", 0.015, 250, 4.0),
        periodic("a log of 30 ms each 10 steps", 0.02, 10, 0.03),
        periodic("a checkpoint of 2 s each 100 steps", 0.05, 100, 2.0),
        bursts("another program works now and then", 0.01),
        drifting("a processor that becomes warm", 0.008),
        heavy_tails("sentences of all lengths", 0.02),
        workers("four workers that deliver in bursts", 0.01, 4),
        periodic("short epochs of 16 steps with a validation", 0.02, 16, 0.15),
    ]


def periodic(name, step_s, every, extra_s, count=4000):
    draw = random.Random(name)
    ordinary = [step_s * (1 + abs(draw.gauss(0, 0.03))) for _ in range(count)]
    extra = [extra_s * (1 + 0.1 * draw.random()) if number % every == every - 1 else 0.0 for number in range(count)]
    return Trace(name, ordinary, extra=extra)


def bursts(name, step_s, count=6000):
    """Stretches of half a second in which everything takes a third longer."""
    draw, ordinary, left = random.Random(name), [], 0
    for _ in range(count):
        left = left - 1 if left else (50 if draw.random() < 0.004 else 0)
        ordinary.append(step_s * (1 + abs(draw.gauss(0, 0.04))) * (1.33 if left else 1.0))
    return Trace(name, ordinary)


def drifting(name, step_s, count=6000):
    draw = random.Random(name)
    return Trace(name, [step_s * (1 + 0.25 * number / count) * (1 + abs(draw.gauss(0, 0.03))) for number in range(count)])


def heavy_tails(name, step_s, count=4000):
    draw = random.Random(name)
    return Trace(name, [step_s * (0.5 + min(4.0, draw.paretovariate(2.5) - 0.5)) for _ in range(count)])


def workers(name, step_s, number, count=4000):
    draw = random.Random(name)
    waits = [number * step_s * (0.4 + 0.1 * draw.random()) if step % number == 0 else 0.0 for step in range(count)]
    return Trace(name, [step_s * (1 + abs(draw.gauss(0, 0.03))) for _ in range(count)], waits)
