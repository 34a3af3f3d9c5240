"""The policy of batch sizes over imagined memories."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from imagined import Machine, plan, search

from flatout.base.records import Missing, replace
from flatout.tune.batch.size_policy import (
    BatchPolicy,
    chosen,
    is_safe,
    larger_size,
    next_size,
    predicted_end,
    safe_size,
    smaller_size,
)
from flatout.tune.search.questions_and_answers import BatchGoal, BatchProbe, Ending, Finished, Mode, SegmentResult, Status
from flatout.tune.search.search import Search

GIB = 2**30


def policy(goal=BatchGoal.FIT, start=16, largest=65536, limit=6 * GIB, headroom=0.08):
    return BatchPolicy(goal=goal, start=start, largest=largest, memory_limit=limit, headroom=headroom)


def explore(wanted, peak, rate=lambda size: float(size), reports=True, limit=6 * GIB):
    probes = []
    while (size := next_size(probes, wanted)) is not None:
        ran = peak(size) <= limit
        told = int(peak(size)) if reports and ran else Missing("not-reported")
        probes.append(BatchProbe(size=size, ran=ran, peak=told, rate=rate(size) if ran else Missing("oom")))
        assert len(probes) < 40
    return probes


@given(
    base=st.floats(0.1 * GIB, 3 * GIB),
    per_sample=st.floats(GIB / 2000, GIB / 8),
    start=st.integers(1, 64),
    bend=st.floats(0, 0.3),
)
@example(base=107374183.0, per_sample=31628700.0, start=43, bend=0.0)
def test_the_largest_safe_batch(base, per_sample, start, bend):
    """Also where the line bends: a workspace that grows by itself from some size on."""

    def peak(size):
        return base + per_sample * size * (1 + bend * min(1.0, size / 500))

    wanted = policy(start=start)
    assume(peak(start) <= wanted.memory_goal)
    probes = explore(wanted, peak)
    largest = start
    while largest < wanted.largest and peak(largest + 1) <= wanted.memory_goal:
        largest += 1
    best = chosen(probes, wanted)
    assert is_safe(best, wanted)
    assert best.size >= 0.95 * largest or largest - best.size <= 1
    assert len(probes) <= 16


@given(base=st.floats(0.1 * GIB, 3 * GIB), per_sample=st.floats(GIB / 2000, GIB / 8), start=st.integers(1, 64))
def test_no_probe_goes_further_than_one_doubling(base, per_sample, start):
    wanted = policy(start=start)
    done = []
    for probe in explore(wanted, lambda size: base + per_sample * size):
        fitted = [one.size for one in done if is_safe(one, wanted)]
        assert not fitted or probe.size <= 2 * max(fitted)
        done.append(probe)


def test_without_reported_memory_the_size_itself_keeps_head_room():
    wanted = policy(limit=None)
    probes = explore(wanted, lambda size: size * GIB / 100, reports=False)
    best = chosen(probes, wanted)
    assert 0.95 * 600 <= best.size <= 600
    assert safe_size(best.size, wanted) <= 0.92 * 600


def test_growing_ends_where_it_no_longer_pays():
    wanted = policy(goal=BatchGoal.GROW)
    probes = explore(wanted, lambda size: size * GIB / 1000, rate=lambda size: 1000.0 * size / (size + 40))
    assert chosen(probes, wanted).size == 256, "the next doubling gives 7 %"
    flat = explore(wanted, lambda size: size * GIB / 1000, rate=lambda size: 1000.0 * min(size, 64))
    assert [probe.size for probe in flat] == [16, 32, 64, 128, 256]
    assert chosen(flat, wanted).size == 64


def test_a_batch_that_makes_the_allocator_retry_is_not_safe():
    wanted = policy()
    probe = BatchProbe(size=64, ran=True, peak=GIB, retries=1, rate=10.0)
    assert not is_safe(probe, wanted)
    assert next_size([BatchProbe(size=16, ran=True, peak=GIB, rate=5.0), probe], wanted) < 64


def test_a_start_that_does_not_fit_goes_down():
    wanted = policy(start=64)
    probes = explore(wanted, lambda size: size * GIB / 4)
    assert chosen(probes, wanted).size == 22
    assert next_size([BatchProbe(size=1, ran=False)], wanted) is None


def test_where_the_double_may_be_too_much_half_of_it_tells_the_slope():
    """64 takes more than half of what there is: 128 would be the end of a child."""
    probes = explore(policy(start=64), lambda size: 0.4 * GIB + size * GIB * 5.1 / 91)
    assert [one.size for one in probes][:2] == [64, 32]
    assert all(one.ran for one in probes)
    assert chosen(probes, policy(start=64)).size in (90, 91)


def test_two_equal_peaks_predict_nothing():
    wanted = policy()
    same = [BatchProbe(size=16, ran=True, peak=GIB, rate=1.0), BatchProbe(size=32, ran=True, peak=GIB, rate=1.0)]
    assert predicted_end(same, wanted) is None
    assert next_size(same, wanted) == 64


def probe(size, peak, **more):
    return BatchProbe(size=size, ran=True, peak=int(peak * GIB), rate=1.0, **more)


def test_what_tensors_held_makes_the_straighter_line():
    """The reserve jumped between the two; what is allocated did not."""
    lumpy = [probe(16, 1.0, allocated=int(0.8 * GIB)), probe(32, 1.02, allocated=int(1.0 * GIB))]
    assert 300 < predicted_end(lumpy, policy()) < 420
    alone = [probe(16, 1.0), probe(32, 1.02)]
    assert predicted_end(alone, policy()) > 3000


def test_an_end_that_memory_did_not_foresee_keeps_head_room_in_the_size():
    wanted = policy()
    seen = [probe(16, 0.5), probe(32, 0.6), BatchProbe(size=40, ran=False)]
    assert safe_size(32, wanted, seen) == 32
    assert safe_size(39, wanted, [*seen, probe(39, 0.7)]) == 36
    foreseen = [probe(16, 2.0), probe(32, 3.6), BatchProbe(size=64, ran=False)]
    assert safe_size(50, wanted, foreseen) == 50


def test_after_a_proof_the_size_follows_what_it_took():
    wanted, slope = policy(), GIB / 20
    assert smaller_size(probe(100, 5.7), wanted, slope) == 96
    assert smaller_size(probe(100, 5.7), wanted, None) == 90
    assert smaller_size(BatchProbe(size=100, ran=False), wanted, slope) == 90
    assert larger_size(probe(100, 5.0), [], wanted, slope) == 110
    assert larger_size(probe(100, 5.5), [], wanted, slope) is None
    assert larger_size(probe(100, 5.0), [BatchProbe(size=104, ran=False)], wanted, slope) is None
    put_together = replace(probe(104, 5.9), hot=True)  # it ran, with more reserved than the real loop needs
    assert larger_size(probe(100, 5.0), [put_together], wanted, slope) == 110
    assert larger_size(probe(100, 5.0), [replace(put_together, retries=1)], wanted, slope) is None


def kept(machine, goal, **changes):
    wanted = plan(budget_s=600.0, batch=goal, batch_size=32, memory_limit=int(machine.memory_limit), **changes)
    end, segments, results = search(machine, wanted)
    return end, segments, results, next(d for d in end.decisions if d.knob == "batch_size")


MEASURED = {"launch": 6, "device": 8, "prepare": 0.5}
BATCH_ALONE = {"only": ["batch_size"]}


def test_sizes_are_tried_in_the_living_child_and_proved_by_the_argument():
    end, segments, _, decision = kept(Machine(**MEASURED, hot_excess=1.1), BatchGoal.FIT, **BATCH_ALONE)
    hot = [s for s in segments if s.batch is not None]
    assert len(hot) >= 3
    assert not any(s.restart for s in hot)
    proofs = [s for s in segments if s.through_epoch]
    assert 1 <= len(proofs) <= 2, "a child for each probe"
    assert decision.code == "batch-fits"
    largest = int((0.92 * 6e9 - 1e9) / 4e7)
    assert 0.95 * largest <= end.batch.size <= largest, "the probes took more than the real loop: one look further"
    assert end.batch.proved.size == end.batch.size
    assert end.batch.epoch_seen is False


def test_batches_that_do_not_add_up_are_tried_by_the_argument():
    _, segments, _, decision = kept(Machine(**MEASURED, composes=False), BatchGoal.FIT, **BATCH_ALONE)
    assert sum(s.batch is not None for s in segments) == 1
    assert decision.code == "batch-fits"


@pytest.mark.parametrize(("learns", "code"), [(1.0, "batch-learns-faster"), (0.0, "batch-learns-slower")])
def test_faster_means_training(learns, code):
    end, segments, _, decision = kept(Machine(**MEASURED, learns=learns), BatchGoal.GROW, **BATCH_ALONE)
    assert decision.code == code
    assert ("batch_size" in end.profile) == (learns == 1.0)
    assert len([s for s in segments if s.curve]) == 6
    assert end.batch.time_to_loss.verdict == code.removeprefix("batch-learns-")
    assert end.batch.size == (int(end.profile["batch_size"]) if learns else 32)


def test_a_script_that_ends_too_soon_with_a_larger_batch_does_not_end_the_search():
    wanted = plan(budget_s=600.0, batch=BatchGoal.FIT, batch_size=32, memory_limit=int(6e9), **BATCH_ALONE)
    found, runner, results = Search(wanted), Machine(**MEASURED, composes=False).runner(), []
    while not isinstance(step := found.next(results), Finished):
        ends = int(step.knobs.get("batch_size", 32)) > 64
        results.append(SegmentResult(id=step.id, status=Status.ENDED, took_s=0.2) if ends else runner.run(step))
    assert step.ending is Ending.TUNED
    assert step.batch.size <= 64


@pytest.mark.parametrize("goal", [BatchGoal.FIT, BatchGoal.GROW])
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("composes", [True, False])
@pytest.mark.parametrize(("device", "start_s"), [(10, 1.0), (10, 8.0), (150, 3.0), (600, 8.0)])
def test_the_budget_holds_and_no_size_is_kept_that_was_not_proved(goal, alone, composes, device, start_s):
    """Steps from a hundredth of a second to one; a batch twice as large takes twice as long, and a child is dear."""
    machine = Machine(launch=3, device=device, prepare=1.0, start_s=start_s, composes=composes)
    for budget in (30.0, 60.0, 120.0):
        wanted = plan(budget_s=budget, batch=goal, batch_size=32, memory_limit=int(6e9), looked_s=start_s,
                      timed_s=0.5, **(BATCH_ALONE if alone else {}))  # fmt: skip
        end, segments, results = search(machine, wanted)
        assert sum(result.took_s for result in results) - end.raced_s <= 1.15 * budget, (budget, len(segments))
        assert end.raced_s <= 200
        if "batch_size" in end.profile:
            assert end.batch.proved.size == end.batch.size == int(end.profile["batch_size"])
            assert machine.peak(end.profile) <= 0.92 * machine.memory_limit
        else:
            assert end.batch is None or end.batch.size == 32
    assert "batch_size" in end.profile or goal is BatchGoal.GROW or device == 600, "two minutes are enough for a proof"


def test_a_child_that_does_not_come_up_in_time_is_given_up_and_nothing_is_kept():
    machine = Machine(**MEASURED, start_s=1.0)
    wanted = plan(budget_s=30.0, batch=BatchGoal.FIT, batch_size=32, memory_limit=int(6e9), looked_s=1.0, **BATCH_ALONE)
    found, runner, results = Search(wanted), machine.runner(), []
    while not isinstance(step := found.next(results), Finished):
        if step.through_epoch:
            machine.start_s = 200.0
        results.append(runner.run(step))
    assert results[-1].status is Status.LATE
    assert sum(result.took_s for result in results) <= 1.15 * 30
    assert (step.profile, step.batch.size, step.batch.proved) == ({}, 32, None)
    assert next(d for d in step.decisions if d.knob == "batch_size").code == "no-time"


def test_the_largest_batch_alone_is_found_in_a_few_segments_of_a_few_steps():
    """What is timed before and for the answer: each segment is a second of somebody's patience."""
    _, segments, _, decision = kept(Machine(**MEASURED), BatchGoal.FIT, **BATCH_ALONE)
    first_proof = next(index for index, one in enumerate(segments) if one.through_epoch)
    assert first_proof <= 6, [one.batch for one in segments[:first_proof]]
    assert [(one.mode, one.warm_steps, one.timed_steps) for one in segments if one.stage == "baseline"] == [(Mode.REAL, 2, 3)]
    hot = [one for one in segments if one.batch is not None]
    assert all(one.warm_steps + one.timed_steps <= 4 and one.timed_s <= 0.1 for one in hot)
    assert {one.stage for one in segments} == {"baseline", "batch", "final"}
    assert decision.code == "batch-fits"


@pytest.mark.parametrize("own", [20, 40, 80])
def test_where_each_new_size_is_dear_the_line_is_followed_to_the_proof(own):
    """Two sizes that fit tell where memory ends; a third would say so once more, and the proof is in the real loop."""
    machine = Machine(batch=own, launch=9, device=2.2, plans_s=2.0, memory_per_sample=4e7)
    wanted = plan(budget_s=60.0, batch=BatchGoal.FIT, batch_size=own, memory_limit=int(6e9), looked_s=3.0, **BATCH_ALONE)
    end, segments, _ = search(machine, wanted)
    probed = {one.batch for one in segments if one.batch is not None and not one.through_epoch}
    largest = int((0.92 * 6e9 - 1e9) / 4e7)
    assert 0.95 * largest <= end.batch.size <= largest
    assert max(probed) < end.batch.size, "nobody probed what was proved"
    assert len(probed) <= 4
    assert end.batch.proved.size == end.batch.size
    assert [d.code for d in end.decisions if d.knob == "batch_size"] == ["batch-fits"]


def test_a_script_that_takes_no_larger_batch_has_the_largest_that_it_takes():
    """It says so by ending: how much is too much is found by quarters, not by tenths of what memory would hold."""
    machine = Machine(**MEASURED, memory_per_sample=1e6)
    wanted = plan(budget_s=120.0, batch=BatchGoal.FIT, batch_size=8, memory_limit=int(6e9), looked_s=3.0, **BATCH_ALONE)
    found, runner, results = Search(wanted), machine.runner(), []
    while not isinstance(step := found.next(results), Finished):
        dies = step.through_epoch and int(step.knobs["batch_size"]) > 64
        results.append(SegmentResult(id=step.id, status=Status.CRASH, took_s=1.0) if dies else runner.run(step))
    assert 32 <= step.batch.size <= 64
    assert step.batch.proved.size == step.batch.size


def test_a_line_that_promised_too_much_is_followed_down_again():
    machine = Machine(batch=32, launch=9, device=2.2, plans_s=2.0, memory_per_sample=4e7)
    wanted = plan(budget_s=120.0, batch=BatchGoal.FIT, batch_size=32, memory_limit=int(6e9), looked_s=3.0, **BATCH_ALONE)
    found, runner, results = Search(wanted), machine.runner(), []
    while not isinstance(step := found.next(results), Finished):
        dies = step.through_epoch and int(step.knobs["batch_size"]) > 100
        results.append(SegmentResult(id=step.id, status=Status.OOM, took_s=3.0) if dies else runner.run(step))
    assert 64 < step.batch.size <= 100
    assert step.batch.proved.size == step.batch.size


def test_a_validation_that_takes_twice_the_batch_moves_the_answer_and_does_not_end_it():
    """The loop fits to 300, an epoch's end to 150: probes in the loop cannot know that."""
    machine = Machine(**MEASURED, memory_per_sample=1e6)
    wanted = plan(
        budget_s=300.0, batch=BatchGoal.FIT, batch_size=32, memory_limit=int(6e9), looked_s=3.0, batch_limit=300, **BATCH_ALONE
    )
    found, runner, results = Search(wanted), machine.runner(), []
    while not isinstance(step := found.next(results), Finished):
        dies = step.through_epoch and int(step.knobs["batch_size"]) > 150
        results.append(SegmentResult(id=step.id, status=Status.OOM, took_s=3.0) if dies else runner.run(step))
    assert 0.8 * 150 <= step.batch.size <= 150
    assert step.batch.proved.size == step.batch.size


def test_growing_does_not_look_for_the_last_sample_that_fits():
    probes = explore(policy(goal=BatchGoal.GROW), lambda size: size * GIB / 100, limit=6 * GIB)
    assert len([one for one in probes if one.size > 512]) <= 2, [one.size for one in probes]


def test_of_batches_about_as_fast_the_smaller_is_taken():
    """Seen on a card: 32,720 samples/s at 256, 40,232 at 2048, an eighth of the steps."""
    seen = {32: 5271, 64: 10837, 128: 20050, 256: 32720, 512: 34544, 1024: 37783, 2048: 40232}
    probes = [BatchProbe(size=size, ran=True, peak=GIB, rate=float(rate)) for size, rate in seen.items()]
    assert chosen(probes, policy(goal=BatchGoal.GROW)).size == 256
    assert chosen(probes[:3], policy(goal=BatchGoal.GROW)).size == 128


@pytest.mark.parametrize("goal", [BatchGoal.FIT, BatchGoal.GROW])
def test_behind_the_wall_of_the_input_a_batch_is_found_all_the_same(goal):
    """Where it was asked for by name, or the script does not start without it; a faster one would only wait longer."""
    for too_large in (None, 64):
        wanted = plan(
            budget_s=200.0, worker_cap=2, batch=goal, batch_size=32, memory_limit=int(6e9), batch_limit=(too_large or 999) - 1,
            batch_too_large=too_large,
        )  # fmt: skip
        end, _, _ = search(Machine(prepare=200, cores=2), wanted)
        assert end.code == "input-is-the-wall"
        assert ("batch_size" in end.profile) == (goal is BatchGoal.FIT or too_large is not None)
        assert any(decision.knob == "batch_size" for decision in end.decisions), "what was asked for is answered"
        if "batch_size" in end.profile:
            assert end.batch.proved.size == int(end.profile["batch_size"])
