"""The cards beside a run: NVML faked at its door; looks counted, states compared, the thread gone with the child."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from fake_nvml import H200, MIB, FakeNvml, NVMLError

from flatout.base.records import Missing, encode
from flatout.launch import child, watcher
from flatout.launch.watcher import Watcher
from flatout.machine import host, nvml
from flatout.machine.card_totals import Tally
from flatout.machine.machine_facts import Gpu
from flatout.machine.run_look import DeviceLook, Regime
from flatout.measure.gpu_state import compare

THERMAL, POWER_CAP, IDLE = 0x40, 0x4, 0x1


def at_work(used_mib=20_000, events=0, clock=1900, heat=70, busy=95):
    return {
        **H200,
        "MemoryInfo": SimpleNamespace(total=143_771 * MIB, free=(143_156 - used_mib) * MIB),
        "UtilizationRates": SimpleNamespace(gpu=busy, memory=10),
        "CurrentClocksEventReasons": events,
        "ClockInfo": clock,
        "Temperature": heat,
    }


@pytest.fixture
def card(monkeypatch):
    """A card whose answers a test may change while somebody looks."""
    fake = FakeNvml(dict(H200))
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def looked(card, *states):
    tally = Tally()
    with nvml.looks() as look:
        for state in states:
            card.cards = (state,)
            tally.add(look())
    return tally.cards()


def test_looks_are_counted_and_not_kept(card):
    states = [H200, *[at_work()] * 6, *[at_work(events=THERMAL, clock=700, heat=92)] * 3, at_work(events=POWER_CAP)]
    (during,) = looked(card, *states)
    assert (during.samples, during.working) == (11, 10)
    assert during.held_back == {"HW_THERMAL_SLOWDOWN": 3, "SW_POWER_CAP": 1}
    assert during.temperature_max_c == 92
    assert (during.sm_clock_held_mhz, during.sm_clock_max_mhz) == (700, 1980)
    assert during.sm_clock_mhz == pytest.approx((7 * 1900 + 3 * 700) / 10)
    assert during.used_max_bytes == (143_771 - 143_156 + 20_000) * MIB
    many = looked(card, *[at_work(events=THERMAL)] * 500)
    assert len(encode(many)) < 2 * len(encode([during]))
    assert card.open == 0


def test_an_idle_card_is_not_held_back(card):
    (during,) = looked(card, *[{**H200, "CurrentClocksEventReasons": IDLE | THERMAL}] * 5)
    assert (during.working, during.held_back) == (0, {})


def test_a_card_that_tells_little_or_falls_off_the_bus(card):
    little = {"Name": "NVIDIA", "UtilizationRates": SimpleNamespace(gpu=50)}
    (during,) = looked(card, little, {"lost": True}, little)
    assert (during.samples, during.working) == (2, 2)
    assert isinstance(during.sm_clock_mhz, Missing)


@pytest.mark.parametrize("start", [9, 12, 18])
def test_without_a_driver_there_is_nothing_to_look_at(monkeypatch, start):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(start=start))
    with nvml.looks() as look:
        assert look() == []
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with nvml.looks() as look:
        assert look() == []


def test_the_watcher_looks_from_start_to_end(card, monkeypatch):
    monkeypatch.setattr(watcher, "EVERY_S", 0.01)
    with Watcher() as watching:
        wait_for(lambda: watching.before)
        card.cards = (at_work(events=THERMAL),)
        wait_for(lambda: watching.during and watching.during[0].working >= 3)
    assert not watching._thread.is_alive()
    assert watching.before[0].temperature_c == 37
    (during,) = watching.during
    assert during.held_back["HW_THERMAL_SLOWDOWN"] >= 3
    after = nvml.driver().gpus
    (change,) = compare(watching.before, after, watching.during, DeviceLook())
    assert change.used
    assert (change.temperature_before_c, change.temperature_after_c) == (37, 70)
    assert change.held_after == ["HW_THERMAL_SLOWDOWN"]
    assert not isinstance(watching.host.io_stalled_s, float) or watching.host.io_stalled_s >= 0


def wait_for(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_driver_that_hangs_holds_nobody_up(card, monkeypatch):
    monkeypatch.setattr(watcher, "PATIENCE_S", 0.2)
    asked, answer = threading.Event(), threading.Event()

    def hang():
        asked.set()
        answer.wait(20)

    monkeypatch.setattr(card, "nvmlInit", hang, raising=False)
    with Watcher() as watching:
        asked.wait(10)
        began = time.monotonic()
    assert time.monotonic() - began < 2
    assert (watching.before, watching.during) == ([], [])
    answer.set()
    watching._thread.join(10)


def test_a_driver_that_answers_nonsense_is_survived(card, monkeypatch):
    monkeypatch.setattr(card, "nvmlDeviceGetCount", lambda: 1 / 0, raising=False)
    with Watcher() as watching:
        time.sleep(0.1)
    assert watching.during == []


def test_the_watcher_takes_no_signals(card, monkeypatch):
    """Each is for the thread that waits for the child: one that another thread took would be lost."""
    masks = []
    monkeypatch.setattr(
        card, "nvmlInit", lambda: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, [])) or 1 / 0, raising=False
    )
    assert child.run([sys.executable, "-c", "import time; time.sleep(0.5)"], {}, Watcher()) == 0
    assert masks
    assert masks[0] >= {*child.PASSED_ON, signal.SIGCHLD}


def gpu(index=0, uuid="GPU-1", used=1, heat=40, **more):
    total = 80 << 30
    return Gpu(
        index=index, name="NVIDIA H200", uuid=uuid, memory_total_bytes=total, memory_free_bytes=total - (used << 30),
        temperature_c=heat, **more,
    )  # fmt: skip


def test_only_the_card_that_was_used_is_told_so():
    first = [gpu(0, "GPU-1"), gpu(1, "GPU-2")]
    tally = Tally()
    tally.add([gpu(0, "GPU-1"), gpu(1, "GPU-2", used=30)])
    changes = compare(first, first, tally.cards(), DeviceLook())
    assert [change.used for change in changes] == [False, True]
    alone = compare(first[:1], first[:1], [], DeviceLook(regime=Regime(device="cuda:0")))
    assert alone[0].used
    assert not compare(first[:1], first[:1], [], DeviceLook())[0].used
    assert compare(first, Missing("nvml-gpu-lost"), [], DeviceLook()) == []
    assert compare([], first, [], DeviceLook()) == []


def test_counters_of_the_host(tmp_path):
    (tmp_path / "pressure").mkdir()
    (tmp_path / "vmstat").write_text("nr_free_pages 5\npswpin 10\npswpout 20\n")
    (tmp_path / "pressure" / "io").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 total=7\n")
    first = host.strain(tmp_path, tmp_path / "none")
    assert first.io_stalled_s == 1.5
    (tmp_path / "vmstat").write_text("pswpin 110\npswpout 20\n")
    (tmp_path / "io.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=4500000\n")
    between = host.strained(first, host.strain(tmp_path, tmp_path))
    assert between.swapped_in_bytes == 100 * os.sysconf("SC_PAGE_SIZE")
    assert (between.swapped_out_bytes, between.io_stalled_s) == (0, 3.0)
    nothing = host.strain(tmp_path / "none", tmp_path / "none")
    assert host.strained(first, nothing).swapped_in_bytes == Missing("not-reported")


def test_an_error_of_the_driver_is_an_answer(card):
    card.cards = ({**H200, "Temperature": NVMLError(3)},)
    with nvml.looks() as look:
        (seen,) = look()
    assert seen.temperature_c == Missing("nvml-not-supported", "NVML error 3")
