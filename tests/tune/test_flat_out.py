""" "Already flat out" is said where nothing that matters is unknown, and never where something would help."""

import random

import pytest
from imagined import OFFERS, Machine, plan, search

from flatout.tune.search.questions_and_answers import Ending

AT_ITS_FLOOR = {
    "bf16": 1.0,
    "bf16_launch": 1.0,
    "tf32": 1.0,
    "nhwc": 1.0,
    "nhwc_bf16": 1.0,
    "bench": 1.0,
    "fused_launch": 1.0,
    "compiled": 1.0,
    "compiled_launch": 1.0,
    "graphs_launch": 1.0,
    "prepare": 0.05,
    "copy": 0.01,
    "build_s": 2.0,
}
# What a planted gain makes of one machine: a factor on the part that it changes.
PLANTED = {
    "bf16": ("bf16",),
    "tf32": ("tf32",),
    "nhwc": ("nhwc", "nhwc_bf16"),
    "fused_launch": ("fused_launch",),
    "compiled": ("compiled",),
    "graphs_launch": ("graphs_launch",),
}


def drawn(seed):
    draw = random.Random(seed)
    launch_bound = draw.random() < 0.4
    device = draw.uniform(2, 30)
    return draw, Machine(
        **{
            **AT_ITS_FLOOR,
            "launch": device * (draw.uniform(1.5, 4) if launch_bound else draw.uniform(0.1, 0.7)),
            "device": device,
            "start_s": draw.uniform(1, 6),
            "sigma": draw.choice([0.004, 0.008, 0.015]),
            "knows_busy": draw.random() > 0.3,
            "replays": draw.random() > 0.3,
            "drift": draw.choice([0, 0, -0.0005]),
            "seed": seed,
        }
    )


def ending(machine, budget_s):
    offers = [one for one in OFFERS if one.knob not in ("batch_size", "cudnn_benchmark")]
    return search(machine, plan(offers=offers, budget_s=budget_s, timed_s=0.3, has_loader=machine.replays))[0]


@pytest.mark.parametrize("decade", range(5))
def test_a_loop_with_a_planted_gain_is_never_called_flat_out(decade):
    for seed in range(10 * decade, 10 * decade + 10):
        draw, machine = drawn(seed)
        starved = machine.launch > machine.device
        names = ["fused_launch", "graphs_launch"] if starved else ["bf16", "tf32", "nhwc", "compiled"]
        factor = draw.uniform(0.4, 0.85)
        for field in PLANTED[draw.choice(names)]:
            setattr(machine, field, factor)
        end = ending(machine, draw.choice([60.0, 90.0, 240.0]))
        assert end.ending is not Ending.FLAT_OUT, (seed, [(d.knob, d.value, d.code, d.ratio) for d in end.decisions])


def test_loops_at_their_floor_are_called_so():
    """At least 45 of 50; the others are left open, and none is said to have become faster."""
    ends = [ending(drawn(seed)[1], 240.0) for seed in range(100, 150)]
    assert sum(end.ending is Ending.FLAT_OUT for end in ends) >= 45
    assert all(not end.profile for end in ends)
