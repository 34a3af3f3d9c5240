"""The one door to NVML. Every answer is a value or a `Missing` with the driver's own reason; nothing raises."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from flatout.base.records import Missing, replace
from flatout.data import table
from flatout.machine.model import Driver, Gpu, GpuProcess

T = TypeVar("T")

REASONS = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "nvml-library-not-found",
    "NVML_ERROR_DRIVER_NOT_LOADED": "nvml-driver-not-loaded",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "nvml-version-mismatch",
    "NVML_ERROR_NO_PERMISSION": "nvml-no-permission",
    "NVML_ERROR_NOT_SUPPORTED": "nvml-not-supported",
    "NVML_ERROR_FUNCTION_NOT_FOUND": "nvml-not-supported",
    "NVML_ERROR_GPU_IS_LOST": "nvml-gpu-lost",
    "NVML_ERROR_RESET_REQUIRED": "nvml-reset-required",
    "NVML_ERROR_UNKNOWN": "nvml-unknown-error",
}
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
DRIVER_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}
UNKNOWN_PSTATE = 32
UNNAMED = "NVIDIA GPU"


def driver() -> Driver:
    """What the driver's own library says of itself and its cards, now."""
    try:
        import pynvml
    except ImportError as error:
        return _nothing(Missing("nvml-package-missing", str(error)))
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _nothing(Missing(_reason(pynvml, error), str(error)))
    try:
        return Driver(version=_ask(pynvml, _version), cuda=_ask(pynvml, _cuda), gpus=_ask(pynvml, _gpus), nvml_error="none")
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


@contextlib.contextmanager
def looks() -> Iterator[Callable[[], list[Gpu]]]:
    """Held open for many looks at what changes while a card works; each look is a few short questions to each card."""
    pynvml: Any = None
    with contextlib.suppress(Exception):  # without the package, the library or a driver there is nothing to look at
        import pynvml as found

        found.nvmlInit()
        pynvml = found
    if pynvml is None:
        yield list
        return
    try:
        yield lambda: _look(pynvml)
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _look(nvml: Any) -> list[Gpu]:
    count = _ask(nvml, lambda n: int(n.nvmlDeviceGetCount()))
    cards = [_ask(nvml, _moving, index) for index in range(0 if isinstance(count, Missing) else count)]
    return [card for card in cards if not isinstance(card, Missing)]


def _moving(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(question: Callable[[Any, Any], T]) -> T | Missing:
        return _ask(nvml, question, handle)

    memory = ask(lambda n, h: n.nvmlDeviceGetMemoryInfo(h))
    name = ask(lambda n, h: _text(n.nvmlDeviceGetName(h)))
    return Gpu(
        index=index,
        name=name if isinstance(name, str) else UNNAMED,
        uuid=ask(lambda n, h: _text(n.nvmlDeviceGetUUID(h))),
        memory_total_bytes=memory if isinstance(memory, Missing) else int(memory.total),
        memory_free_bytes=memory if isinstance(memory, Missing) else int(memory.free),
        utilisation=ask(lambda n, h: int(n.nvmlDeviceGetUtilizationRates(h).gpu)),
        temperature_c=ask(lambda n, h: int(n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU))),
        power_draw_w=ask(lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1000),
        sm_clock_mhz=ask(lambda n, h: int(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM))),
        sm_clock_max_mhz=ask(lambda n, h: int(n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM))),
        clock_events=ask(_clock_events),
    )


def _nothing(why: Missing) -> Driver:
    return Driver(version=why, cuda=why, gpus=why, nvml_error=why.reason)


def _ask(nvml: Any, question: Callable[..., T], *args: Any) -> T | Missing:
    try:
        return question(nvml, *args)
    except nvml.NVMLError as error:
        return Missing(_reason(nvml, error), str(error))
    except (AttributeError, TypeError, ValueError, LookupError, OSError) as error:
        # Another version of the package or of the library than this was written for.
        return Missing("nvml-error", f"{type(error).__name__}: {error}")


def _reason(nvml: Any, error: Any) -> str:
    names = {getattr(nvml, name): reason for name, reason in REASONS.items() if hasattr(nvml, name)}
    return names.get(getattr(error, "value", None), "nvml-error")


def _version(nvml: Any) -> str:
    return _text(nvml.nvmlSystemGetDriverVersion())


def _cuda(nvml: Any) -> str:
    version = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
    return f"{version // 1000}.{version % 1000 // 10}"


def _gpus(nvml: Any) -> list[Gpu]:
    count = int(nvml.nvmlDeviceGetCount())
    cards = [_ask(nvml, _gpu, index) for index in range(count)]
    if count == 1 and isinstance(cards[0], Missing):
        # Asked again for its error, which is then the answer for all cards.
        return [_gpu(nvml, 0)]
    return [_lost(index, card) if isinstance(card, Missing) else card for index, card in enumerate(cards)]


def _lost(index: int, why: Missing) -> Gpu:
    """A card that is counted but does not answer, while its neighbours do."""
    return Gpu(
        index=index, name=UNNAMED, uuid=why, memory_total_bytes=why, memory_free_bytes=why, capability=why, processes=why
    )


def _gpu(nvml: Any, index: int) -> Gpu:
    """What changes while a card works, and what does not."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(question: Callable[[Any, Any], T]) -> T | Missing:
        return _ask(nvml, question, handle)

    return replace(
        _moving(nvml, index),
        pci_bus_id=ask(lambda n, h: _text(n.nvmlDeviceGetPciInfo(h).busId)),
        capability=ask(lambda n, h: "{}.{}".format(*n.nvmlDeviceGetCudaComputeCapability(h))),
        power_limit_w=ask(_power_limit),
        power_limit_default_w=ask(lambda n, h: n.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1000),
        power_limit_max_w=ask(lambda n, h: n.nvmlDeviceGetPowerManagementLimitConstraints(h)[1] / 1000),
        pstate=ask(_pstate),
        link_width=ask(lambda n, h: int(n.nvmlDeviceGetCurrPcieLinkWidth(h))),
        link_width_max=ask(lambda n, h: int(n.nvmlDeviceGetMaxPcieLinkWidth(h))),
        link_generation=ask(lambda n, h: int(n.nvmlDeviceGetCurrPcieLinkGeneration(h))),
        link_generation_max=ask(lambda n, h: int(n.nvmlDeviceGetMaxPcieLinkGeneration(h))),
        ecc_uncorrected=ask(_ecc_uncorrected),
        ecc_pending=ask(_ecc_pending),
        remap_failed=ask(lambda n, h: bool(n.nvmlDeviceGetRemappedRows(h)[3])),
        mig_enabled=ask(lambda n, h: bool(n.nvmlDeviceGetMigMode(h)[0])),
        mig_devices=ask(_mig_devices),
        compute_mode=ask(lambda n, h: COMPUTE_MODES[n.nvmlDeviceGetComputeMode(h)]),
        persistence=ask(lambda n, h: bool(n.nvmlDeviceGetPersistenceMode(h))),
        driver_model=ask(lambda n, h: DRIVER_MODELS[n.nvmlDeviceGetDriverModel(h)[0]]),
        display_active=ask(lambda n, h: bool(n.nvmlDeviceGetDisplayActive(h))),
        processes=ask(_processes),
    )


def _power_limit(nvml: Any, handle: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetPowerManagementLimit(handle)) / 1000
    except nvml.NVMLError:
        # Laptops do not let one set it, but tell what is enforced.
        return float(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)) / 1000


def _pstate(nvml: Any, handle: Any) -> str | Missing:
    state = int(nvml.nvmlDeviceGetPerformanceState(handle))
    return Missing("not-reported") if state == UNKNOWN_PSTATE else f"P{state}"


def _clock_events(nvml: Any, handle: Any) -> list[str]:
    try:
        bits = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except nvml.NVMLError:
        bits = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))  # its name before driver 535
    return [row["name"] for row in table("drivers")["clock_event"] if bits & row["mask"]]


def _ecc_uncorrected(nvml: Any, handle: Any) -> int:
    # Since the driver was loaded: what was repaired long ago (the aggregate count) says nothing of today.
    uncorrected, volatile = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return int(nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, volatile))


def _ecc_pending(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetRemappedRows(handle)[2])
    except nvml.NVMLError:
        # Before Ampere pages were retired instead of rows remapped.
        return bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))


def _mig_devices(nvml: Any, handle: Any) -> list[str]:
    if not nvml.nvmlDeviceGetMigMode(handle)[0]:
        return []
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(nvml.NVMLError):  # slots without a device
            found.append(_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))))
    return found


def _processes(nvml: Any, handle: Any) -> list[GpuProcess]:
    found: dict[int, GpuProcess] = {}
    running = list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    with contextlib.suppress(nvml.NVMLError):
        running += nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
    for process in running:
        pid, used = int(process.pid), process.usedGpuMemory
        # Under WDDM Windows owns the memory and the driver cannot tell.
        memory = Missing("nvml-not-supported") if used is None else int(used)
        found.setdefault(pid, GpuProcess(pid=pid, name=_ask(nvml, _process_name, pid), memory_bytes=memory))
    return list(found.values())


def _process_name(nvml: Any, pid: int) -> str:
    """The program's name alone: its path and arguments are nobody's business."""
    name = _text(nvml.nvmlSystemGetProcessName(pid)).replace("\\", "/").split(" -")[0]
    return os.path.basename(name.strip()) or name


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
