"""The policy of batch sizes over imagined memories."""

from hypothesis import assume, given
from hypothesis import strategies as st

from flatout.base.records import Missing
from flatout.tune.batch import BatchPolicy, BatchProbe, chosen, is_safe, next_size, predicted_end, safe_size
from flatout.tune.model import BatchGoal

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
    assert chosen(probes, wanted).size >= 1024
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


def test_two_equal_peaks_predict_nothing():
    wanted = policy()
    same = [BatchProbe(size=16, ran=True, peak=GIB, rate=1.0), BatchProbe(size=32, ran=True, peak=GIB, rate=1.0)]
    assert predicted_end(same, wanted) is None
    assert next_size(same, wanted) == 64
