"""One moment of cards and host. NVML is faked at its door; faults of every kind are planted at every call of it."""

from __future__ import annotations

import ctypes
import json
import math
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_nvml import H200, MIB, FakeNvml, NVMLError
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.base import records
from flatout.base.records import Missing
from flatout.machine import host, host_look, nvml_door
from flatout.machine.card_look import SELDOM, CardLook
from flatout.machine.host import Counters, Strain
from flatout.machine.sampler import Sampler
from flatout.machine.telemetry import CardSample, Sample

RECORDED = json.loads((Path(__file__).parents[1] / "machines" / "h200.json").read_text(encoding="utf-8"))

BUSY = {
    **H200,
    "MemoryInfo": SimpleNamespace(total=143771 * MIB, free=100000 * MIB, used=43771 * MIB),
    "UtilizationRates": SimpleNamespace(gpu=98, memory=40),
    "Temperature": 64,
    "PowerUsage": 655_000,
    "ClockInfo": 1755,
    "CurrentClocksEventReasons": 0x4 | 0x40,
    "TemperatureThreshold": 92,
    "PcieThroughput": 2048,
    "EncoderUtilization": [3, 1_000_000],
    "DecoderUtilization": [0, 1_000_000],
    "ComputeRunningProcesses": [SimpleNamespace(pid=7, usedGpuMemory=40000 * MIB)],
    "ProcessUtilization": [SimpleNamespace(timeStamp=5_000_000, pid=7, smUtil=90)],
    "RemappedRows": (1, 0, 1, 0),
}


class Clock:
    def __init__(self):
        self.wall_s, self.passed = 1_700_000_000.0, 50.0

    def wall(self):
        return self.wall_s + self.passed

    def monotonic(self):
        return self.passed

    def sleep(self, seconds):
        self.passed += seconds


def put(monkeypatch, *cards, start=0):
    fake = FakeNvml(*cards, start=start)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_a_working_card(monkeypatch):
    put(monkeypatch, BUSY)
    look = CardLook()
    (card,) = look.look()
    assert (card.utilisation, card.memory_busy, card.temperature_c, card.temperature_limit_c) == (98, 40, 64, 92)
    assert (card.power_w, card.power_limit_w, card.sm_clock_mhz, card.sm_clock_max_mhz) == (655.0, 700.0, 1755, 1980)
    assert (card.memory_used_bytes, card.memory_total_bytes) == (43771 * MIB, 143771 * MIB)
    assert card.held_by == ("SW_POWER_CAP", "HW_THERMAL_SLOWDOWN")
    assert card.idle is False
    assert (card.link_generation, card.link_width, card.link_received_bytes_s) == (5, 16, 2 * MIB)
    assert (card.encoder_percent, card.rows_remapped, card.remap_pending, card.remap_failed) == (3, 1, True, False)
    assert card.fan_percent == Missing("nvml-not-supported", "NVML error 3")  # a card without a fan of its own
    (process,) = card.processes
    assert (process.pid, process.name, process.memory_bytes, process.busy_percent) == (7, "python3.12", 40000 * MIB, 90)
    look.close()


def test_the_recorded_machine_idle(monkeypatch):
    fake = put(monkeypatch, H200)
    look = CardLook()
    (card,) = look.look()
    told = RECORDED["driver"]["gpus"][0]
    for ours, theirs in (("power_w", "power_draw_w"), ("temperature_c",) * 2, ("sm_clock_mhz",) * 2, ("link_width",) * 2):
        assert getattr(card, ours) == told[theirs]
    assert card.memory_used_bytes == told["memory_total_bytes"] - told["memory_free_bytes"]
    assert card.idle is True
    assert card.held_by == ()  # idleness holds nobody back
    look.close()
    assert fake.open == 0


def test_handles_are_asked_for_once_and_what_hardly_changes_seldom(monkeypatch):
    fake = put(monkeypatch, BUSY)
    calls = []
    handle_of = fake.nvmlDeviceGetHandleByIndex
    fake.nvmlDeviceGetHandleByIndex = lambda index: calls.append("handle") or handle_of(index)
    fake.nvmlDeviceGetPcieThroughput = lambda *_: calls.append("traffic") or 1
    look = CardLook()
    for _ in range(2 * SELDOM):
        look.look()
    assert calls.count("handle") == 1
    assert calls.count("traffic") == 2 * 2


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        ({"Temperature": 0}, "temperature_c"),
        ({"Temperature": 255}, "temperature_c"),
        ({"PowerUsage": 700_000 * 3}, "power_w"),
        ({"PowerUsage": 0}, "power_w"),
        ({"ClockInfo": 65535}, "sm_clock_mhz"),
        ({"ClockInfo": -5}, "sm_clock_mhz"),
        ({"UtilizationRates": SimpleNamespace(gpu=4_000_000_000, memory=0)}, "utilisation"),
        ({"MemoryInfo": SimpleNamespace(total=10 * MIB, free=-90 * MIB)}, "memory_used_bytes"),
        ({"PowerUsage": math.nan}, "power_w"),
        ({"RemappedRows": ("?", 0, 0, 0)}, "rows_remapped"),
    ],
)
def test_what_cannot_be_true_is_no_figure(monkeypatch, answer, field):
    put(monkeypatch, {**BUSY, **answer})
    (card,) = CardLook().look()
    assert isinstance(getattr(card, field), Missing)
    assert getattr(card, field).reason == "implausible"


def test_a_card_that_falls_off_the_bus_keeps_its_name_and_comes_back(monkeypatch):
    fake = put(monkeypatch, BUSY, {**BUSY, "UUID": "GPU-1"})
    look = CardLook()
    look.look()
    fake.cards = ({**BUSY, "lost": True, "UtilizationRates": NVMLError(15)}, fake.cards[1])
    look._door.forget()
    first, second = look.look()
    assert first.name == "NVIDIA H200"
    assert first.temperature_c.reason == first.power_limit_w.reason == "nvml-gpu-lost"
    assert second.temperature_c == 64
    fake.cards = (BUSY, fake.cards[1])
    assert look.look()[0].temperature_c == 64
    # It is not even counted any more: its number is another card's now.
    fake.cards = (fake.cards[1],)
    here, gone = look.look()
    assert (here.uuid, gone.uuid, gone.temperature_c) == ("GPU-1", H200["UUID"], Missing("card-gone"))


def test_a_handle_that_is_none_is_asked_for_again(monkeypatch):
    fake = put(monkeypatch, BUSY)
    handle_of = fake.nvmlDeviceGetHandleByIndex
    fake.nvmlDeviceGetHandleByIndex = lambda index: 0.0
    look = CardLook()
    (card,) = look.look()
    assert isinstance(card.temperature_c, Missing)
    fake.nvmlDeviceGetHandleByIndex = handle_of
    assert any(look.look()[0].temperature_c == 64 for _ in range(3))


def test_a_driver_that_is_loaded_again(monkeypatch):
    fake = put(monkeypatch, BUSY, start=9)
    look = CardLook()
    assert look.look().reason == "nvml-driver-not-loaded"
    fake.start = 0
    assert any(isinstance(look.look(), tuple) for _ in range(3))
    fake.nvmlDeviceGetCount = lambda: (_ for _ in ()).throw(NVMLError(1))
    (card,) = look.look()
    assert (card.name, card.utilisation.reason) == ("NVIDIA H200", "nvml-not-open")
    del fake.nvmlDeviceGetCount
    assert any(look.look()[0].utilisation == 98 for _ in range(3))


def test_without_nvml_the_host_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    clock = Clock()
    with Sampler(clock) as sampler:
        first = sampler.sample()
        assert first.host.cpu_percent == Missing("first-look")
        clock.sleep(1)
        second = sampler.sample()
    assert second.cards.reason == "nvml-package-missing"
    assert 0 <= second.host.cpu_percent <= 100
    assert len(second.host.core_percent) >= 1
    assert 0 < second.host.memory_used_bytes < second.host.memory_total_bytes
    assert records.decode(records.encode(second), Sample) == second


# -- faults at every call ---------------------------------------------------------------------------------------------------

ERRORS = [NVMLError(code) for code in (1, 3, 4, 6, 9, 15, 16, 999, 12345)]
RAISED = [
    *ERRORS,
    OSError("gone"),
    AttributeError("x"),
    ValueError("x"),
    KeyError("x"),
    OverflowError("x"),
    ctypes.ArgumentError(),
]
NONSENSE = [None, 0, -1, 2**64, 1e308, math.nan, math.inf, "?", b"\xff\xfe", (), [], SimpleNamespace(), {}, True, [None] * 4]


class Faulty(FakeNvml):
    """Any call answers rightly, raises, or gives nonsense, by a seed; cards come and go."""

    def __init__(self, seed, *cards):
        super().__init__(*cards)
        self.all = cards
        self.dice = random.Random(seed)
        self.share = self.dice.choice([0.02, 0.2, 0.6])

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if not name.startswith("nvml") or name == "nvmlShutdown":
            return found
        return super().__getattribute__("planted")(found)

    def __getattr__(self, name):
        found = super().__getattr__(name)
        return self.planted(found) if callable(found) else found

    def planted(self, call):
        def ask(*arguments):
            if self.dice.random() < self.share:
                fault = self.dice.choice([*RAISED, *NONSENSE])
                if isinstance(fault, Exception):
                    raise fault
                return fault
            return call(*arguments)

        return ask


def numbers(card):
    for name in CardSample.__struct_fields__:
        value = getattr(card, name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value


@settings(max_examples=25)
@given(seed=st.integers(0, 10**9))
def test_faults_at_any_call_never_stop_it(seed):
    fake = Faulty(seed, BUSY, {**BUSY, "UUID": "GPU-1"}, {**BUSY, "UUID": "GPU-2"})
    with pytest.MonkeyPatch.context() as planted:
        planted.setitem(sys.modules, "pynvml", fake)
        planted.setattr(nvml_door, "LONGEST_PAUSE", 4)
        clock = Clock()
        with Sampler(clock) as sampler:
            last = 0.0
            for _ in range(15):
                fake.cards = fake.all[: fake.dice.randint(0, 3)] if fake.dice.random() < 0.2 else fake.cards
                clock.sleep(fake.dice.choice([0, 0.1, 1, 100]))
                clock.wall_s += fake.dice.choice([0, 0, 0, -5000, 5000])
                sample = sampler.sample()
                assert sample.t >= last
                last = sample.t
                for card in sample.cards if isinstance(sample.cards, tuple) else ():
                    for name, value in numbers(card):
                        assert math.isfinite(value), name
                        assert value >= 0, name
                        assert value <= 100 or not name.endswith(("percent", "utilisation")) or name == "fan_percent", name
                    assert card.temperature_c != 0
                    assert card.power_w != 0
                assert records.decode(records.encode(sample), Sample) == sample
            # It comes back: once nothing fails any more, all is told again.
            fake.share, fake.cards = 0.0, fake.all
            samples = [sampler.sample() for _ in range(nvml_door.LONGEST_PAUSE + SELDOM + 2)]
            assert [card.temperature_c for card in samples[-1].cards[:3]] == [64, 64, 64]
            assert {card.uuid for card in samples[-1].cards[:3]} == {H200["UUID"], "GPU-1", "GPU-2"}


# -- the host ---------------------------------------------------------------------------------------------------------------


def counted(**changed):
    strain = Strain(swapped_in_bytes=1000, swapped_out_bytes=0, io_stalled_s=2.0)
    whole = Counters(
        cores=((10.0, 100.0), (50.0, 100.0)),
        memory=(4, 10),
        swap=(1, 2),
        shared_memory=(0, 8),
        disk=(1000, 500),
        network=(0, 0),
        strain=strain,
    )
    return records.replace(whole, **changed)


def test_two_readings_of_the_host():
    later = counted(
        cores=((11.0, 102.0), (52.0, 102.0)),
        disk=(5000, 500),
        strain=Strain(swapped_in_bytes=9000, swapped_out_bytes=Missing("not-reported"), io_stalled_s=3.0),
    )
    host_now = host_look.between(counted(), later, 2.0)
    assert host_now.core_percent == (50.0, 100.0)
    assert host_now.cpu_percent == 75.0
    assert (host_now.disk_read_bytes_s, host_now.disk_written_bytes_s, host_now.swap_in_bytes_s) == (2000.0, 0.0, 4000.0)
    assert host_now.io_stalled == 0.5
    assert host_now.swap_out_bytes_s == Missing("not-reported")


def test_counters_that_jump_back_and_cores_that_go():
    back = host_look.between(counted(), counted(disk=(10, 900), cores=((10.0, 100.0),)), 1.0)
    assert back.disk_read_bytes_s.reason == "implausible"
    assert back.disk_written_bytes_s == 400.0
    assert back.cpu_percent == Missing("not-reported")
    assert host_look.between(counted(), counted(), 0.0).disk_read_bytes_s == Missing("first-look")


def test_what_the_system_does_not_tell_is_missing(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("no")

    for name in ("cpu_times", "virtual_memory", "swap_memory", "disk_io_counters", "net_io_counters"):
        monkeypatch.setattr(host.psutil, name, refuse)
    told = host.counters(proc=Path("/nowhere"), shm=Path("/nowhere"))
    sample = host_look.between(told, told, 1.0)
    assert all(isinstance(getattr(sample, name), Missing) for name in type(sample).__struct_fields__ if name != "io_stalled")


def test_the_file_system_of_a_folder(tmp_path):
    assert host.file_system(Path("/proc/self")) == "proc" or sys.platform != "linux"
    assert host.file_system(tmp_path / "not" / "yet") == host.file_system(tmp_path)


def test_the_clock_never_runs_back(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    clock = Clock()
    with Sampler(clock) as sampler:
        start = sampler.now()
        clock.wall_s -= 3600
        clock.sleep(10)
        assert sampler.now() == start + 10
        clock.wall_s += 3 * 3600  # the machine slept: there is a gap, and time goes on
        assert sampler.now() == pytest.approx(start + 10 + 2 * 3600)
