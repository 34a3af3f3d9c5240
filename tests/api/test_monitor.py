"""The monitor: what the loop tells, what the door to NVML says of the card, and what is missing where there is none."""

from __future__ import annotations

import json
import sys
import time
from types import SimpleNamespace

import pytest
from examples import given, settings, st
from recorded_nvml import RecordedNvml

from flatout.api import advice, card_account, monitor, performance, refusals
from flatout.api.monitor import PerformanceMonitor
from flatout.api.performance import Spread
from flatout.base import records
from flatout.base.records import Missing
from flatout.base.words import LANGUAGES, Words
from flatout.machine import nvml
from flatout.machine.machine_facts import Gpu
from flatout.machine.run_look import DeviceMemory, GpuChange, MemoryGrowth


@pytest.fixture
def door(monkeypatch):
    fake = RecordedNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@pytest.fixture
def nobody(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)


def wait_for(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_the_report_is_what_the_driver_says(door):
    recorded = door.card
    watching = PerformanceMonitor(0, every_s=0.005).start()
    wait_for(lambda: watching._card.watcher.before)
    door.now = {"utilisation": 91, "used": 40 << 30, "power": 655.5, "temperature": 66}
    wait_for(lambda: watching._card.accounts.last and watching._card.accounts.last[0].utilisation == 91)
    watching._card.accounts.forget()  # only looks at work from here on
    wait_for(lambda: isinstance(watching.report().utilisation, Spread) and watching.report().utilisation.looks >= 3)
    watching.step(32)
    report = watching.stop()
    with nvml.looks() as look:
        (seen,) = look()
    assert (report.device, report.device_index) == (recorded.name, 0)
    assert (report.utilisation.mean, report.utilisation.low, report.utilisation.high) == (91, 91, 91)
    assert report.utilisation.mean == seen.utilisation
    assert report.power_w.mean == pytest.approx(seen.power_draw_w)
    assert report.temperature_c.mean == seen.temperature_c
    assert report.memory_used_bytes.high == seen.memory_total_bytes - seen.memory_free_bytes
    assert report.memory_total_bytes == recorded.memory_total_bytes
    assert isinstance(report.change, GpuChange)
    assert report.change.used
    assert (report.change.used_before_bytes, report.change.used_after_bytes) == (0, 40 << 30)
    assert (report.change.temperature_before_c, report.change.temperature_after_c) == (recorded.temperature_c, 66)
    assert not watching._card.watcher._thread.is_alive()


figures = st.fixed_dictionaries(
    {
        "utilisation": st.one_of(st.integers(0, 100), st.just(Missing("nvml-not-supported"))),
        "power_draw_w": st.one_of(st.floats(1, 1000), st.just(Missing("nvml-not-supported"))),
        "temperature_c": st.integers(20, 110),
        "memory_free_bytes": st.integers(0, 6 << 30),
    }
)


@settings(max_examples=100)
@given(st.lists(figures, min_size=1, max_size=20))
def test_means_and_extremes_are_those_of_the_looks(looks):
    """Property 6: what is told lies within what the driver said, and is its mean."""
    accounts = card_account.CardAccounts()
    for look in looks:
        accounts.add([Gpu(index=0, name="NVIDIA", memory_total_bytes=6 << 30, **look)])
    for name in ("utilisation", "power_draw_w", "temperature_c"):
        said = [look[name] for look in looks if not isinstance(look[name], Missing)]
        told = accounts.spread(0, name)
        if not said:
            assert told == Missing("nvml-not-supported")
            continue
        assert (told.low, told.high, told.looks) == (min(said), max(said), len(said))
        assert told.mean == pytest.approx(sum(said) / len(said))
    used = accounts.spread(0, "used")
    assert used.high == (6 << 30) - min(look["memory_free_bytes"] for look in looks)
    assert accounts.spread(1, "used") == Missing("no-looks")


def fake_clock(times):
    values = iter(times)
    return lambda: next(values)


def test_speed_is_counted_after_the_first_step(nobody):
    watching = PerformanceMonitor("cpu")
    # start, the first step (which compiles for nine seconds), then one every half second, stop
    watching._clock = fake_clock([100.0, 109.0, 109.5, 110.0, 110.5, 111.0, 112.0])
    watching.start()
    for _ in range(5):
        watching.step(10)
    report = watching.stop()
    assert (report.steps, report.samples, report.seconds) == (5, 50, 12.0)
    assert report.samples_per_s == pytest.approx(40 / 2.0)
    assert report.recent_samples_per_s == pytest.approx(20.0)


def test_a_pause_is_none_of_the_trainings_speed(nobody):
    watching = PerformanceMonitor("cpu")
    # start, step, step, a pause of a hundred seconds, step; and a pause after which nothing comes
    watching._clock = fake_clock([0.5, 1.0, 2.0, 2.0, 102.0, 103.0, 103.0, 203.0, 204.0])
    watching.start()
    watching.step(10)
    watching.step(10)
    with watching.paused():
        pass
    watching.step(10)
    with watching.paused():
        pass
    report = watching.stop()
    assert report.samples_per_s == pytest.approx(20 / 2.0)
    assert report.recent_samples_per_s == pytest.approx(10.0)


def test_a_step_before_the_start_starts_it(nobody):
    watching = PerformanceMonitor("cpu")
    watching.step(4)
    watching.step(4)
    report = watching.stop()
    assert (report.steps, report.samples) == (2, 8)
    assert report.samples_per_s > 0


def test_without_a_gpu_it_says_what_is_missing(nobody):
    with PerformanceMonitor() as watching:
        wait_for(lambda: watching._card.watcher.missing is not None)
        watching.step(8, loss=1.5)
    report = watching.report()
    assert report.device == report.utilisation == report.power_w == report.memory_used_bytes
    assert report.device.reason == "nvml-package-missing"
    assert report.samples_per_s == Missing("too-few-steps")
    assert (report.steps, report.samples, report.losses) == (1, 8, [(1, 1.5)])
    for language in LANGUAGES:
        text = "\n".join(performance.lines(report, Words(language)))
        assert Words(language)("missing.nvml-package-missing") in text
        assert "None" not in text
        assert "Missing" not in text
    assert watching.advice() == []
    assert PerformanceMonitor("cpu").start().stop().device == Missing("on-cpu")


def test_the_report_in_words(door):
    watching = PerformanceMonitor(0, every_s=0.005).start()
    wait_for(lambda: isinstance(watching.report().utilisation, Spread))
    report = watching.stop()
    text = str(report)
    assert "NVIDIA H200" in text
    for language in LANGUAGES:
        assert "127.0 W" in "\n".join(performance.lines(report, Words(language)))


def test_losses_are_read_where_they_are_known_and_said_where_they_break(nobody):
    torch = pytest.importorskip("torch")
    watching = PerformanceMonitor("cpu", every_s=0.0).start()
    weight = torch.ones(1, requires_grad=True)
    for step in range(30):
        watching.step(4, (weight * (2.0 if step < 20 else float("nan"))).sum())
    report = watching.stop()
    assert report.losses[0] == (1, 2.0)
    assert report.loss_not_finite_from == 21
    (said,) = watching.advice()
    assert said.startswith("AP513: The loss is NaN at step 21; it was 2 before.")
    assert "AP513" in PerformanceMonitor.advice(watching)[0]


def test_a_step_is_cheap(nobody):
    """No look, no allocation that stays: a loop of a hundred thousand steps is over at once."""
    torch = pytest.importorskip("torch")
    loss = torch.ones(())
    with PerformanceMonitor("cpu", every_s=60.0) as watching:
        watching.step(1, loss)
        began = time.perf_counter()
        for _ in range(100_000):
            watching.step(32, loss)
        spent = time.perf_counter() - began
    assert spent < 2.0  # 20 µs a step would be a fault; it is below 1 here
    assert len(watching._rates.points) <= 1


@pytest.mark.parametrize(
    ("device", "kind"),
    [(3.5, TypeError), ([], TypeError), ("tpu", ValueError), ("cuda:x", ValueError), (-1, ValueError), (True, TypeError)],
)
def test_a_device_that_cannot_be_meant(device, kind):
    with pytest.raises(kind) as caught:
        PerformanceMonitor(device)
    assert str(caught.value).startswith("device ")


def test_what_a_step_cannot_mean(nobody):
    with PerformanceMonitor("cpu") as watching:
        for wrong in ("32", 3.0, None, True):
            with pytest.raises(refusals.ArgumentTypeError, match="samples must be int"):
                watching.step(wrong)
        with pytest.raises(refusals.ArgumentTypeError, match="loss must be"):
            watching.step(1, loss="0.3")
    with pytest.raises(refusals.ArgumentValueError, match="clear_cache_above"):
        PerformanceMonitor(clear_cache_above=80)


def seen_by(**more):
    return advice.Seen(steps=1000, seconds=100.0, **more)


def empty(**more):
    nothing = Missing("no-device")
    fields = {name: nothing for name in performance.PerformanceReport.__dataclass_fields__ if name not in DEFAULTED}
    return performance.PerformanceReport(**{**fields, "seconds": 100.0, "steps": 1000, "samples": 8000, **more})


DEFAULTED = ("held_back", "change", "losses", "loss_not_finite_from", "cache_clears")


def codes(report, seen):
    return [sentence.split(":")[0] for sentence in advice.sentences(report, seen, Words("en"))]


def test_advice_comes_from_what_was_measured():
    assert codes(empty(), seen_by()) == []
    busy = Spread(mean=95.0, low=80, high=100, looks=60)
    assert codes(empty(utilisation=busy), seen_by()) == []
    idle = Spread(mean=20.0, low=0, high=40, looks=60)
    assert codes(empty(utilisation=idle), seen_by()) == ["AP516"]
    assert codes(empty(utilisation=Spread(20.0, 0, 40, looks=2)), seen_by()) == []  # too few to judge by
    growth = MemoryGrowth(
        bytes_per_step=2e6,
        low_bytes_per_step=1.9e6,
        significance=9.0,
        grown_bytes=10**9,
        late_bytes=5 * 10**8,
        steps=500,
        points=40,
    )
    leaking = codes(empty(growth=growth), seen_by(memory=DeviceMemory(allocated_bytes=1 << 30, total_bytes=6 << 30)))
    assert leaking == ["AP512"]


def test_a_loop_that_slows_down_is_told():
    steady = [(float(step), 100.0 + step % 3) for step in range(60)]
    slowing = [(float(step), 100.0 - step / 2) for step in range(60)]
    assert not advice.slower(steady)
    assert advice.slower(slowing)
    assert codes(empty(), seen_by(rates=slowing)) == ["AP515"]


def test_caches_are_cleared_only_when_asked_and_no_cure_is_claimed(nobody):
    class Cuda:
        cleared = 0

        def memory_reserved(self, index):
            return 9 << 30

        def get_device_properties(self, index):
            return SimpleNamespace(total_memory=10 << 30)

        def empty_cache(self):
            self.cleared += 1

    cuda = Cuda()
    PerformanceMonitor(0)._keep_cache_small(cuda)
    assert cuda.cleared == 0
    PerformanceMonitor(0, clear_cache_above=0.95)._keep_cache_small(cuda)
    assert cuda.cleared == 0
    watching = PerformanceMonitor(0, clear_cache_above=0.8)
    watching._keep_cache_small(cuda)
    assert cuda.cleared == watching._cache_clears == 1
    assert "does not fix a memory leak" in advice.sentences(empty(cache_clears=1), seen_by(), Words("en"))[0]


class CudaStandIn:
    """torch's own books of a card that we lack: memory that a leak fills, four mebibytes a step."""

    def __init__(self, uuid):
        self.uuid, self.allocated = uuid.removeprefix("GPU-"), 1 << 30

    def is_initialized(self):
        return True

    def current_device(self):
        return 0

    def device_count(self):
        return 1

    def memory_allocated(self, index):
        self.allocated += 4 << 20
        return self.allocated

    def memory_reserved(self, index):
        return self.allocated + (1 << 20)

    max_memory_allocated = max_memory_reserved = memory_reserved

    def memory_stats(self, index):
        return {"num_alloc_retries": 0, "num_ooms": 0}

    def get_device_properties(self, index):
        return SimpleNamespace(uuid=self.uuid, total_memory=6 << 30)


def test_a_leak_in_torchs_books_is_told_while_it_trains(door, monkeypatch):
    cuda = CudaStandIn(door.card.uuid)
    door.now = {"utilisation": 95}
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, Tensor=float))
    watching = PerformanceMonitor(every_s=0.0)
    watching.start()
    wait_for(lambda: watching._card.watcher.began.is_set())
    for _ in range(100):
        watching.step(4)
    said = watching.advice()
    report = watching.stop()
    assert report.device == "NVIDIA H200"
    assert report.growth.bytes_per_step == pytest.approx(4 << 20)
    assert report.allocated_peak_bytes > 1 << 30
    assert [sentence.split(":")[0] for sentence in said] == ["AP512"]
    assert "4.0 MiB a step" in said[0]


def test_a_report_is_plain_data_too(door):
    watching = PerformanceMonitor(0, every_s=0.005).start()
    wait_for(lambda: isinstance(watching.report().utilisation, Spread))
    tree = json.loads(records.encode(watching.stop()))
    assert tree["utilisation"].keys() == {"mean", "low", "high", "looks"}
    assert tree["samples_per_s"]["reason"] == "too-few-steps"
    assert tree["change"]["name"] == "NVIDIA H200"


def test_a_card_is_found_by_what_the_variable_leaves_and_by_its_uuid():
    cards = [Gpu(index=place, name=f"card {place}", uuid=f"GPU-{place}aaa") for place in range(3)]
    assert card_account.card_of(cards, 0, environment={}).index == 0
    assert card_account.card_of(cards, 0, environment={"CUDA_VISIBLE_DEVICES": "2,0"}).index == 2
    assert card_account.card_of(cards, 1, environment={"CUDA_VISIBLE_DEVICES": "2"}) is None
    started = SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 1,
        get_device_properties=lambda place: SimpleNamespace(uuid="1aaa"),
    )  # fmt: skip
    assert card_account.card_of(cards, 0, torch=SimpleNamespace(cuda=started), environment={}).index == 1


def test_the_default_pace():
    assert monitor.EVERY_S == 1.0
