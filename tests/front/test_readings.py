"""The device's part of a journal: read where it is there, left out where it is absent or damaged."""

import json
import math

import pytest
from test_attribution import journal

from _flatout_agent.wire import parse_journal
from flatout.base import records
from flatout.base.records import Missing
from flatout.machine.run_look import DeviceLook, Losses
from flatout.measure import readings
from flatout.measure.process_journals import attribute

GIB = 1 << 30

WINDOW = {
    "memory": {"allocated": GIB, "reserved": 2 * GIB, "peak": 3 * GIB, "peak_reserved": 4 * GIB, "total": 80 * GIB,
               "retries": 2},
    "memory_trend": [[step, GIB + step * 1000] for step in range(0, 640, 10)],
    "lag": {"count": 50, "starved": 40, "mid_ns": 5_000_000},
    "device_busy": [400_000_000, 1_000_000_000],
    "reads": [
        {"site": "train.py:9", "what": "cpu", "ns": 1_000_000, "count": 10},
        {"site": "train.py:88", "what": "item", "ns": 3_000_000_000, "count": 1000},
    ],
    "copies": {"pinned": 0, "unpinned": 100, "blocking": 100, "bytes": 123},
    "regime": {"autocast": False, "tf32": True, "dtype": "torch.float32", "compiled": False, "device": "cuda:0",
               "capability": [9, 0], "parameters": 1000},
    "losses": [[1, 2.5], [2, 2.0]],
    "tokens": 60_000,
    "kernels_per_step": 120,
}  # fmt: skip


def test_all_of_it_is_read():
    told = attribute([journal(steps=100, **WINDOW)], 8.0)
    device = told.device
    assert device.memory is not None
    assert (device.memory.peak_bytes, device.memory.retries, device.memory.ooms) == (3 * GIB, 2, 0)
    assert device.growth is not None
    assert device.growth.bytes_per_step == pytest.approx(1000)
    assert device.lag is not None
    assert (device.lag.samples, device.lag.starved, device.lag.mean_s) == (50, 40, pytest.approx(1e-4))
    assert device.busy is not None
    assert device.busy.share == pytest.approx(0.4)
    assert [read.site for read in device.reads] == ["train.py:88", "train.py:9"]
    assert device.copies is not None
    assert device.copies.unpinned == 100
    assert device.regime is not None
    assert (device.regime.dtype, device.regime.capability) == ("float32", "9.0")
    assert told.losses.points == [(1, 2.5), (2, 2.0)]
    assert told.tokens_per_s == pytest.approx(10_000)
    assert device.kernels_per_step == 120
    assert told.bottleneck.by == "input"


def test_older_journals_are_read_as_before():
    told = attribute([journal()], 8.0)
    assert told.device == DeviceLook(kernels_per_step=Missing("not-reported"))
    assert told.losses == Losses(not_finite_from=Missing("not-reported"))
    assert told.tokens_per_s == Missing("not-reported")
    assert (told.out_of_memory, told.device_mix) == (None, None)


@pytest.mark.parametrize("damage", [None, 7, "x", [], {}, [[]], [None], {"count": "many"}, [1], [1, None], math.nan, -5, True])
@pytest.mark.parametrize("field", WINDOW)
def test_a_damaged_field_costs_only_itself(field, damage):
    window = {**WINDOW, field: damage}
    told = attribute([journal(steps=100, **window)], 8.0)
    assert told.steps == 100
    assert records.encode(told)


def test_losses_that_are_no_numbers():
    text = json.dumps({"losses": [[1, 1.0], [2, math.nan], [3, 2.0], [4, math.inf], [5, math.nan]]})
    (window,) = parse_journal(text)
    losses = readings.losses_of(window)
    assert losses.points == [(1, 1.0), (3, 2.0)]
    assert (losses.not_finite, losses.not_finite_from) == (3, 4)
    recovered = readings.losses_of({"losses": [[1, 1.0], [2, None], [3, 2.0]]})
    assert (recovered.not_finite, recovered.not_finite_from) == (1, Missing("not-reported"))
    for written in (None, "nan", "inf", math.nan):
        assert readings.losses_of({"losses": [[1, written]]}).not_finite_from == 1


def test_the_last_shortage_and_a_mix_of_devices():
    lines = [
        {"kind": "oom", "step": 3, "message": "first", "memory": {"total": 1}},
        {
            "kind": "oom",
            "step": 9,
            "message": "CUDA out of memory.",
            "memory": {"total": 80 * GIB, "allocated": 70 * GIB},
            "holders": [{"what": "parameters", "bytes": 1}, {"what": "activations", "bytes": 60 * GIB}, {"what": "broken"}, 7],
            "batch": 64,
        },
        {
            "kind": "devices",
            "site": "train.py:90",
            "message": "m",
            "tensors": [{"name": "model.fc.weight", "device": "cuda:0"}],
        },
    ]
    told = attribute([journal(), [*journal(2, steps=1), *lines]], 8.0)
    assert told.out_of_memory is not None
    assert (told.out_of_memory.step, told.out_of_memory.batch) == (9, 64)
    assert [holder.what for holder in told.out_of_memory.holders] == ["activations", "parameters"]
    assert told.device_mix is not None
    assert (told.device_mix.site, told.device_mix.tensors[0].name) == ("train.py:90", "model.fc.weight")


def test_the_warm_up_is_no_evidence():
    """Three first steps of heavy host work, then a loop that waits for data."""
    from _flatout_agent.wire import PHASES

    totals = [0] * len(PHASES)
    totals[PHASES.index("forward")] = int(20e9)
    warm = {"samples": 12, "phases": totals}
    seconds = {"forward": 21.0, "backward": 0.0, "optimizer": 0.0, "input": 9.0}
    assert attribute([journal(steps=100, warm=warm, seconds=seconds)], 40.0).bottleneck.by == "input"
