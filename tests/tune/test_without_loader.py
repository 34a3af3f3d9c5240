"""A loop that draws its batches by itself: nothing of the input side is offered, asked or measured."""

import pytest
from imagined import OFFERS, Machine, plan, search

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


@pytest.mark.parametrize(("threads", "tried"), [(None, None), (1, None), (2, ["1"]), (16, ["8", "1"])])
def test_on_a_processor_fewer_threads_are_tried(threads, tried):
    offers = {offer.knob: offer for offer in make({"device": "cpu", "loaders": [], "threads": threads}, 2.0).offers}
    assert (offers["cpu_threads"].values if "cpu_threads" in offers else None) == tried
    assert "cpu_threads" not in {offer.knob for offer in make({"device": "cuda", "threads": 8}, 2.0).offers}


@pytest.mark.parametrize("cores", [1, 2])
def test_where_there_are_two_cores_one_worker_is_tried(cores):
    machine = Machine(batch=32, prepare=20.0, cores=2, launch=3.0, device=18.0, knows_busy=False)
    workers = [one for one in OFFERS if one.knob == "workers"]
    _, segments, _ = search(machine, plan(offers=workers, budget_s=120.0, worker_cap=cores))
    assert "1" in {segment.knobs.get("workers") for segment in segments}
