"""A loop that draws its batches by itself: nothing of the input side is offered, asked or measured."""

import pytest
from imagined import Machine, search

from flatout.base.records import replace
from flatout.tune.model import Ending, Mode
from flatout.tune.plan import make

NONE = {"device": "cuda", "loaders": []}
INPUT = {"workers", "persistent_workers", "prefetch_factor", "pin_memory", "non_blocking", "device_prefetch"}


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_input_side_is_not_offered(device):
    assert not INPUT & {offer.knob for offer in make({"device": device, "loaders": []}, 8.0).offers}
    assert "workers" in {offer.knob for offer in make({"device": device, "loaders": [None]}, 8.0).offers}


@pytest.mark.parametrize("step_ms", [15.0, 1600.0])
def test_all_its_segments_are_steps_of_the_script(step_ms):
    """Seen: four workers were tried where there was no loader; that took most of the time and spoilt every later price."""
    machine = Machine(prepare=1e-3, copy=1e-3, launch=1.0, device=step_ms, replays=False, supplies=False, knows_busy=False)
    wanted = replace(make(NONE, 8.0, budget_s=120.0), skip=["compile", "cudnn_benchmark"])
    end, segments, _ = search(machine, wanted)
    assert {segment.mode for segment in segments} == {Mode.REAL}
    assert not any(INPUT & set(segment.knobs) for segment in segments)
    assert end.ending is Ending.TUNED
    assert {"precision", "tf32"} & set(end.profile)
