"""A stand-in for the package pynvml, fed with the values of one H200: NVML is faked at its door and nowhere else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

NAMES = {
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_NO_PERMISSION": 4,
    "NVML_ERROR_NOT_FOUND": 6,
    "NVML_ERROR_DRIVER_NOT_LOADED": 9,
    "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
    "NVML_ERROR_FUNCTION_NOT_FOUND": 13,
    "NVML_ERROR_GPU_IS_LOST": 15,
    "NVML_ERROR_RESET_REQUIRED": 16,
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": 18,
    "NVML_ERROR_UNKNOWN": 999,
    "NVML_TEMPERATURE_GPU": 0,
    "NVML_ERROR_UNINITIALIZED": 1,
    "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN": 1,
    "NVML_CLOCK_SM": 1,
    "NVML_CLOCK_MEM": 2,
    "NVML_PCIE_UTIL_TX_BYTES": 0,
    "NVML_PCIE_UTIL_RX_BYTES": 1,
    "NVML_MEMORY_ERROR_TYPE_CORRECTED": 0,
    "NVML_VOLATILE_ECC": 0,
    "NVML_AGGREGATE_ECC": 1,
    "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
}
MIB = 1 << 20
H200 = {
    "Name": "NVIDIA H200",
    "UUID": "GPU-00000000-0000-0000-0000-000000000000",
    "PciInfo": SimpleNamespace(busId=b"00000000:00:06.0"),
    "MemoryInfo": SimpleNamespace(total=143771 * MIB, free=143156 * MIB),
    "CudaComputeCapability": (9, 0),
    "UtilizationRates": SimpleNamespace(gpu=0, memory=0),
    "Temperature": 37,
    "PowerUsage": 127020,
    "PowerManagementLimit": 700000,
    "PowerManagementDefaultLimit": 700000,
    "PowerManagementLimitConstraints": [200000, 700000],
    "PerformanceState": 0,
    "ClockInfo": 405,
    "MaxClockInfo": 1980,
    "CurrentClocksEventReasons": 1,
    "CurrPcieLinkWidth": 16,
    "MaxPcieLinkWidth": 16,
    "CurrPcieLinkGeneration": 5,
    "MaxPcieLinkGeneration": 5,
    "TotalEccErrors": 0,
    "RemappedRows": (0, 0, 0, 0),
    "MigMode": [0, 0],
    "ComputeMode": 0,
    "PersistenceMode": 1,
    "DisplayActive": 0,
    "ComputeRunningProcesses": [],
    "GraphicsRunningProcesses": [],
}


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml:
    """`cards`: a dict of answers each; an answer that is an NVMLError is raised, and one that is absent is not supported."""

    NVMLError = NVMLError

    def __init__(self, *cards: dict[str, Any], start: int = 0) -> None:
        self.cards = cards
        self.start = start
        self.open = 0

    def nvmlInit(self) -> None:
        if self.start:
            raise NVMLError(self.start)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.159.04"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13000

    def nvmlSystemGetProcessName(self, pid: int) -> bytes:
        return {7: b"/home/somebody/.venv/bin/python3.12 -m train", 8: b"C:\\Windows\\explorer.exe"}[pid]

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        handle = self.cards[index]
        if "lost" in handle:
            raise NVMLError(15)
        return handle

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> dict[str, Any]:
        if index > 1:
            raise NVMLError(6)
        return {"UUID": f"MIG-0000000{index}-0000-0000-0000-000000000000"}

    def __getattr__(self, name: str) -> Any:
        if name in NAMES:
            return NAMES[name]
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def ask(handle: dict[str, Any], *further: Any) -> Any:
            answer = handle.get(name.removeprefix("nvmlDeviceGet"), NVMLError(3))
            if isinstance(answer, NVMLError):
                raise answer
            return answer

        return ask
