"""The door to NVML: every answer is a value or says why not."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from fake_nvml import H200, MIB, FakeNvml, NVMLError

from flatout.base.records import Missing
from flatout.machine import nvml
from flatout.machine.machine_facts import UNKNOWN


@pytest.fixture
def asked(monkeypatch):
    def ask(*cards, **more):
        fake = FakeNvml(*cards, **more)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        found = nvml.driver()
        assert fake.open == 0
        return found

    return ask


def test_h200(asked):
    found = asked(H200)
    assert (found.version, found.cuda, found.nvml_error) == ("580.159.04", "13.0", "none")
    (card,) = found.gpus
    assert (card.name, card.capability, card.pci_bus_id) == ("NVIDIA H200", "9.0", "00000000:00:06.0")
    assert (card.memory_total_bytes, card.memory_free_bytes) == (143771 * MIB, 143156 * MIB)
    assert (card.power_draw_w, card.power_limit_w, card.power_limit_default_w, card.power_limit_max_w) == (
        127.02,
        700,
        700,
        700,
    )
    assert (card.pstate, card.sm_clock_mhz, card.sm_clock_max_mhz, card.temperature_c) == ("P0", 405, 1980, 37)
    assert card.clock_events == ["GPU_IDLE"]
    assert (card.link_width, card.link_width_max, card.link_generation, card.link_generation_max) == (16, 16, 5, 5)
    assert (card.ecc_uncorrected, card.ecc_pending, card.remap_failed) == (0, False, False)
    assert (card.mig_enabled, card.mig_devices, card.compute_mode, card.persistence) == (False, [], "default", True)
    assert (card.display_active, card.processes, card.utilisation) == (False, [], 0)
    assert card.driver_model.reason == "nvml-not-supported"


def test_every_field_is_asked_for(asked):
    (card,) = asked(H200).gpus
    assert [name for name in card.__struct_fields__ if getattr(card, name) == UNKNOWN] == []


def test_a_card_that_answers_nothing(asked):
    (card,) = asked({}).gpus
    assert card.name == "NVIDIA GPU"
    left = [getattr(card, name) for name in card.__struct_fields__ if name not in ("index", "name", "vendor")]
    assert {value.reason for value in left} == {"nvml-not-supported"}


def test_throttled_laptop(asked):
    busy = SimpleNamespace(pid=7, usedGpuMemory=3 * MIB)
    window = SimpleNamespace(pid=8, usedGpuMemory=None)
    older = {"CurrentClocksThrottleReasons": 0x4 | 0x20, "EnforcedPowerLimit": 60000, "DriverModel": [0, 0]}
    left_out = ("CurrentClocksEventReasons", "PowerManagementLimit", "RemappedRows")
    card = {name: value for name, value in H200.items() if name not in left_out}
    running = {"ComputeRunningProcesses": [busy], "GraphicsRunningProcesses": [busy, window], "RetiredPagesPendingStatus": 1}
    (found,) = asked({**card, **older, **running, "PerformanceState": 32}).gpus
    assert found.clock_events == ["SW_POWER_CAP", "SW_THERMAL_SLOWDOWN"]
    assert (found.power_limit_w, found.driver_model, found.ecc_pending) == (60.0, "WDDM", True)
    assert found.remap_failed.reason == "nvml-not-supported"
    assert found.pstate == Missing("not-reported")
    assert [(each.pid, each.name) for each in found.processes] == [(7, "python3.12"), (8, "explorer.exe")]
    assert found.processes[0].memory_bytes == 3 * MIB
    assert found.processes[1].memory_bytes.reason == "nvml-not-supported"


def test_mig(asked):
    (card,) = asked({**H200, "MigMode": [1, 1], "ComputeMode": 3}).gpus
    assert card.mig_enabled is True
    assert card.mig_devices == [f"MIG-0000000{index}-0000-0000-0000-000000000000" for index in (0, 1)]
    assert card.compute_mode == "exclusive_process"


def test_errors_of_memory(asked):
    (card,) = asked({**H200, "TotalEccErrors": 2, "RemappedRows": (0, 1, 1, 1)}).gpus
    assert (card.ecc_uncorrected, card.ecc_pending, card.remap_failed) == (
        2,
        True,
        True,
    )  # since the driver was loaded: what was repaired before is not counted


def test_one_of_two_cards_is_lost(asked):
    lost, well = asked({"lost": True}, H200).gpus
    assert (lost.index, lost.memory_total_bytes.reason) == (0, "nvml-gpu-lost")
    assert (well.index, well.name) == (1, "NVIDIA H200")


def test_the_only_card_is_lost(asked):
    found = asked({"lost": True})
    assert found.gpus.reason == "nvml-gpu-lost"
    assert found.version == "580.159.04"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "nvml-driver-not-loaded"),
        (12, "nvml-library-not-found"),
        (18, "nvml-version-mismatch"),
        (4, "nvml-no-permission"),
        (999, "nvml-unknown-error"),
        (77, "nvml-error"),
    ],
)
def test_nvml_does_not_start(asked, code, reason):
    found = asked(start=code)
    assert found.nvml_error == found.version.reason == found.gpus.reason == reason


def test_a_package_of_another_time(asked):
    (card,) = asked({**H200, "ComputeMode": 99, "Temperature": "warm", "MemoryInfo": NVMLError(999)}).gpus
    assert card.compute_mode.reason == card.temperature_c.reason == "nvml-error"
    assert card.memory_free_bytes.reason == "nvml-unknown-error"


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.driver().nvml_error == "nvml-package-missing"
