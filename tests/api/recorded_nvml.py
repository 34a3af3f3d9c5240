"""The package pynvml at its door, answering with a recorded machine's figures; those in `now` have moved since."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from flatout.base import records
from flatout.machine.machine_facts import Facts, Gpu

H200 = Path(__file__).resolve().parents[1] / "machines" / "h200.json"


def recorded_card() -> Gpu:
    return records.read(H200, Facts).driver.gpus[0]


class RecordedNvml:
    NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = 0

    class NVMLError(Exception):
        value = 3

    def __init__(self) -> None:
        self.card, self.now = recorded_card(), {}

    def __getattr__(self, name):
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *_: self._answer(name)

    def _answer(self, name):
        card, now = self.card, self.now
        total = card.memory_total_bytes
        answers = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlSystemGetDriverVersion": "580.159.04",
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": 0,
            "nvmlDeviceGetName": card.name,
            "nvmlDeviceGetUUID": card.uuid,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=total, free=total - now.get("used", 0)),
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=now.get("utilisation", card.utilisation)),
            "nvmlDeviceGetTemperature": now.get("temperature", card.temperature_c),
            "nvmlDeviceGetPowerUsage": now.get("power", card.power_draw_w) * 1000,
            "nvmlDeviceGetClockInfo": card.sm_clock_mhz,
            "nvmlDeviceGetMaxClockInfo": card.sm_clock_max_mhz,
            "nvmlDeviceGetCurrentClocksEventReasons": now.get("events", 0),
            "nvmlDeviceGetComputeRunningProcesses": [],
        }
        if name not in answers:
            raise self.NVMLError
        return answers[name]
