"""Growing the batch on imagined machines: faster, sooner at the same loss, with all that it wants, and left where it idles."""

import pytest
from imagined import Machine, plan, search

from flatout.base.records import replace
from flatout.measure.time_to_loss import LossCurve
from flatout.tune.search.questions_and_answers import BatchGoal, Mode

KINDS = {
    "many launches": {"batch": 32, "launch": 9, "device": 2.2, "prepare": 1.2, "bf16": 0.9, "compiled": 1.0, "build_s": 2.0},
    "much to compute": {"batch": 64, "launch": 21, "device": 98, "prepare": 32, "bf16": 0.46, "compiled": 0.6, "build_s": 33.0},
    "large steps": {"batch": 4, "launch": 22, "device": 85, "prepare": 0.1, "bf16": 0.3, "compiled": 0.5, "build_s": 27.0},
}
MEMORY = {"many launches": 2e6, "much to compute": 1e8, "large steps": 4e9}  # of a sample


@pytest.mark.parametrize("kind", KINDS)
def test_growing_is_not_paid_for_with_what_else_makes_it_fast(kind):
    """In its four minutes a search for the fastest batch ends ahead of one that keeps the batch, and within its time."""
    ends = {}
    for goal in (BatchGoal.KEEP, BatchGoal.GROW):
        machine = Machine(
            looked=True, start_s=7.0, cores=16, memory_limit=140e9, memory_per_sample=MEMORY[kind], seed=2, **KINDS[kind]
        )
        wanted = plan(
            budget_s=228.0, timed_s=0.5, looked_s=14.0, batch=goal, batch_size=machine.batch, batch_limit=2048,
            memory_limit=int(machine.memory_limit),
        )  # fmt: skip
        end, segments, results = search(machine, wanted)
        ends[goal] = machine.rate(end.profile)
        raced = sum(result.took_s for segment, result in zip(segments, results, strict=True) if segment.curve)
        assert end.raced_s == pytest.approx(raced)
        assert raced <= 240.0
        assert end.spent_s <= 1.1 * 228.0
    assert end.batch.time_to_loss.verdict in ("faster", "unknown")
    assert "batch_size" in end.profile
    assert ends[BatchGoal.GROW] > (1.2 if kind == "many launches" else 1.05) * ends[BatchGoal.KEEP]


def test_where_the_fastest_learns_no_sooner_a_quarter_of_it_has_its_turn():
    machine = Machine(
        start_s=3.0, memory_limit=140e9, memory_per_sample=MEMORY["many launches"], learns=0.4, **KINDS["many launches"]
    )
    wanted = plan(
        budget_s=600.0, batch=BatchGoal.GROW, batch_size=32, batch_limit=2048, memory_limit=int(140e9), only=["batch_size"]
    )
    end, segments, _ = search(machine, wanted)
    told = {d.value: d.code for d in end.decisions if d.knob == "batch_size"}
    size = int(end.profile["batch_size"])
    fastest = max(int(value) for value in told)
    assert told[str(fastest)] == "batch-learns-slower"
    assert told[str(size)] in ("batch-learns-faster", "batch-faster")  # shown, or not shown
    assert size <= fastest // 4
    assert end.batch.proved.size == size
    assert len([s for s in segments if s.curve]) == 9, "the plain training is that of the first race"


def growing(machine, **changes):
    settings = {"budget_s": 228.0, "timed_s": 0.5, "looked_s": 14.0, "worker_cap": 14, **changes}
    wanted = plan(
        batch=BatchGoal.GROW, batch_size=machine.batch, batch_limit=2048, memory_limit=int(machine.memory_limit), **settings
    )
    return search(machine, wanted)


SLOW_LOADER = {"batch": 32, "launch": 6.2, "device": 1.2, "prepare": 8.4, "bf16": 0.9, "compiled": 1.0, "build_s": 2.0}
CARD = {"looked": True, "start_s": 7.0, "cores": 16, "memory_limit": 140e9, "memory_per_sample": 2e6, "learns": 0.5}


def test_a_batch_races_with_as_many_workers_as_it_wants():
    """Behind the workers of the small batch it could only wait, and be told that it learns no sooner."""
    end, segments, _ = growing(Machine(**SLOW_LOADER, **CARD, seed=3))
    raced = [one for one in segments if one.curve]
    assert all(int(one.knobs["workers"]) >= 8 for one in raced), [one.knobs for one in raced]
    assert "batch_size" in end.profile
    assert end.batch.time_to_loss.ratio > 1.5
    proofs = [one for one in segments if one.through_epoch]
    assert all(one.knobs["workers"] == raced[0].knobs["workers"] for one in proofs)
    assert end.profile["workers"] == raced[0].knobs["workers"]
    assert [d.code for d in end.decisions if d.knob == "workers" and d.verdict == "kept"] == ["wanted-by-batch"]


def test_no_workers_are_tried_for_a_batch_whose_data_costs_nothing():
    _, segments, _ = growing(Machine(batch=4, launch=22, device=85, prepare=0.01, build_s=5.0, **{**CARD, "learns": 1.0}))
    raced = [one for one in segments if one.curve]
    assert raced
    assert not any("workers" in one.knobs for one in raced)


def test_what_is_compiled_is_warm_before_a_grown_batch_is_timed():
    """Seen on a card: two steps after a start the graphs were still being recorded, and 415 samples/s were taken for 125."""
    machine = Machine(**KINDS["large steps"], **{**CARD, "memory_per_sample": 4e9, "learns": 1.0})
    end, segments, _ = growing(machine)
    assert {"compile", "batch_size"} <= set(end.profile)
    final = [one for one in segments if one.stage == "final" and "compile" in one.knobs and one.mode is Mode.REAL]
    assert final
    assert all(one.warm_steps >= 4 for one in final)


def test_a_last_comparison_in_children_goes_on_while_there_is_time():
    """Its children are cheaper than feared, since the compiler's cache is filled: more pairs, and an interval."""
    machine = Machine(**KINDS["large steps"], **{**CARD, "memory_per_sample": 4e9, "learns": 1.0}, rebuild=0.02)
    end, segments, _ = growing(machine, budget_s=140.0)
    plain = [one for one in segments if one.stage == "final" and not one.knobs]
    assert len(plain) >= 6
    assert isinstance(end.lower, float)
    assert end.spent_s <= 1.1 * 140.0


def test_two_races_are_enough():
    machine = Machine(
        start_s=3.0, memory_limit=140e9, memory_per_sample=MEMORY["many launches"], learns=0.0, **KINDS["many launches"]
    )
    wanted = plan(
        budget_s=600.0, batch=BatchGoal.GROW, batch_size=32, batch_limit=2048, memory_limit=int(140e9), only=["batch_size"]
    )
    end, segments, _ = search(machine, wanted)
    assert "batch_size" not in end.profile
    assert len([s for s in segments if s.curve]) == 9


def test_a_batch_that_only_waits_for_the_loader_in_the_end_is_left():
    """Faster while computing took longest; then the compute side overtook the loader, whatever the batch."""
    machine = Machine(
        batch=16, launch=9, device=6, prepare=60, bf16=0.5, compiled=0.8, build_s=8.0, seed=2,
        **{**CARD, "memory_per_sample": 2e7, "learns": 1.0},
    )  # fmt: skip
    end, segments, _ = growing(machine)
    assert [d.code for d in end.decisions if d.knob == "batch_size"] == ["batch-idle"]
    assert "batch_size" not in end.profile
    assert end.batch.size == 16
    assert any(one.curve for one in segments), "it had won its race"


def test_a_batch_is_not_raced_where_the_loader_is_the_limit_already():
    """Since bf16 all the workers that can be had give less than is computed: a larger batch would only wait."""
    machine = Machine(batch=32, launch=3, device=12, prepare=100, bf16=0.4, seed=2, **CARD)
    end, segments, _ = growing(machine, skip=["compile"])
    assert not any(one.curve for one in segments)
    assert [d.code for d in end.decisions if d.knob == "batch_size"] == ["input-is-the-wall"]
    assert end.profile["precision"] == "bf16"


def test_where_children_are_dear_the_race_is_planned_by_what_they_cost():
    """Seen on a card: children were taken for half of what they cost, and after one pair no time was left for the others."""
    machine = Machine(**KINDS["large steps"], **{**CARD, "start_s": 12.0, "memory_per_sample": 4e9, "learns": 1.0})
    end, segments, results = growing(machine, budget_s=183.0, looked_s=12.0)
    curves = [result.curve for segment, result in zip(segments, results, strict=True) if segment.curve]
    assert len(curves) == 6
    assert end.batch.time_to_loss.pairs == 3
    assert end.raced_s <= 1.25 * 100.0
    too_dear = Machine(**KINDS["large steps"], **{**CARD, "start_s": 30.0, "memory_per_sample": 4e9, "learns": 1.0})
    end, segments, _ = growing(too_dear, looked_s=30.0)
    assert not any(one.curve for one in segments), "nothing is begun that cannot be brought to its end"
    assert end.raced_s == 0


def test_a_plain_training_without_a_number_is_no_crash():
    """Its curve ends where it is no number: before its first loss, if need be."""
    machine = Machine(**KINDS["large steps"], **{**CARD, "memory_per_sample": 4e9, "learns": 1.0})
    broken = LossCurve(seconds=[], losses=[], broke=True)
    machine.runner = lambda runner=machine.runner: Breaking(runner(), broken)
    end, _, _ = growing(machine)
    assert end.batch.time_to_loss.code == "plain-not-finite"


class Breaking:
    def __init__(self, runner, curve):
        self._runner, self._curve = runner, curve

    def run(self, segment):
        result = self._runner.run(segment)
        return replace(result, curve=self._curve) if segment.curve else result
