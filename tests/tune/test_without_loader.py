"""A loop that draws its batches by itself: nothing of the input side is offered, asked or measured."""

from dataclasses import replace as replace_machine

import pytest
from imagined import OFFERS, Machine, plan, search

from flatout.base.records import replace
from flatout.tune.search.questions_and_answers import Ending, Mode, Outcome, OutcomeState
from flatout.tune.search.what_to_try import make

NONE = {"device": "cuda", "loaders": []}
ALREADY = {"status": "already", "code": "script-set-it", "details": {}}
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


LANGUAGE_MODEL = Machine(
    batch=12,
    prepare=1e-3,
    copy=1e-3,
    launch=12.4,
    device=4.0,
    compiled=0.9,
    compiled_launch=0.8,
    graphs_launch=0.05,
    start_s=9,
    looked=True,
    replays=False,
    supplies=False,
    refuses={("compile", "graphs"): Outcome(state=OutcomeState.REFUSED, code="output-not-a-tensor")},
)


@pytest.mark.parametrize("budget_s", [60.0, 90.0, 180.0])
@pytest.mark.parametrize("build_s", [20.0, 45.0])
@pytest.mark.parametrize("knows_busy", [True, False])
def test_where_launches_hold_a_loop_up_graphs_come_first(budget_s, build_s, knows_busy):
    """Steps of 12.8 ms, compiled 10.4, with reduce-overhead 4.1: nothing but the last is worth the time of a short search."""
    machine = replace_machine(LANGUAGE_MODEL, build_s=build_s, knows_busy=knows_busy)
    done = {"precision": {"bf16": ALREADY}, "tf32": {"on": ALREADY}, "channels_last": {"on": ALREADY}}
    wanted = make({**NONE, "step_s": 0.0128, "foretold": done}, 16.0, budget_s=budget_s)
    end, _, _ = search(machine, replace(wanted, skip=["cudnn_benchmark"]))
    assert end.profile["compile"] == "reduce-overhead"
    assert end.speedup > 3
    assert end.spent_s <= 1.1 * budget_s
