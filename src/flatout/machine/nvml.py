"""The only file that imports NVML. Every answer is a value or a `Missing` with the driver's reason; nothing raises."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from flatout.base.records import Missing, replace
from flatout.data import table
from flatout.machine.machine_facts import Driver, Gpu, GpuProcess

T = TypeVar("T")

REASONS = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "nvml-library-not-found",
    "NVML_ERROR_DRIVER_NOT_LOADED": "nvml-driver-not-loaded",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "nvml-version-mismatch",
    "NVML_ERROR_NO_PERMISSION": "nvml-no-permission",
    "NVML_ERROR_NOT_SUPPORTED": "nvml-not-supported",
    "NVML_ERROR_FUNCTION_NOT_FOUND": "nvml-not-supported",
    "NVML_ERROR_NOT_FOUND": "nvml-not-found",
    "NVML_ERROR_GPU_IS_LOST": "nvml-gpu-lost",
    "NVML_ERROR_RESET_REQUIRED": "nvml-reset-required",
    "NVML_ERROR_UNKNOWN": "nvml-unknown-error",
    "NVML_ERROR_UNINITIALIZED": "nvml-not-open",
}
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
DRIVER_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}
UNKNOWN_PSTATE = 32
UNNAMED = "NVIDIA GPU"


def driver() -> Driver:
    """What the driver's own library says of itself and its cards, now."""
    nvml = start()
    if isinstance(nvml, Missing):
        return _nothing(nvml)
    try:
        return Driver(version=ask(nvml, _version), cuda=ask(nvml, _cuda), gpus=ask(nvml, _gpus), nvml_error="none")
    finally:
        stop(nvml)


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


def start() -> Any | Missing:
    """The started library, for `machine/nvml_door.py`, which closes it again; or why there is none."""
    try:
        import pynvml
    except ImportError as error:
        return Missing("nvml-package-missing", str(error))
    failed = ask(pynvml, lambda nvml: nvml.nvmlInit())
    return failed if isinstance(failed, Missing) else pynvml


def stop(nvml: Any) -> None:
    ask(nvml, lambda n: n.nvmlShutdown())


def _look(nvml: Any) -> list[Gpu]:
    count = ask(nvml, lambda n: int(n.nvmlDeviceGetCount()))
    cards = [ask(nvml, _moving, index) for index in range(0 if isinstance(count, Missing) else count)]
    return [card for card in cards if not isinstance(card, Missing)]


def _moving(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def told(question: Callable[[Any, Any], T]) -> T | Missing:
        return ask(nvml, question, handle)

    memory = told(lambda n, h: n.nvmlDeviceGetMemoryInfo(h))
    name = told(lambda n, h: text_of(n.nvmlDeviceGetName(h)))
    return Gpu(
        index=index,
        name=name if isinstance(name, str) else UNNAMED,
        uuid=told(lambda n, h: text_of(n.nvmlDeviceGetUUID(h))),
        memory_total_bytes=memory if isinstance(memory, Missing) else int(memory.total),
        memory_free_bytes=memory if isinstance(memory, Missing) else int(memory.free),
        utilisation=told(lambda n, h: int(n.nvmlDeviceGetUtilizationRates(h).gpu)),
        temperature_c=told(lambda n, h: int(n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU))),
        power_draw_w=told(lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1000),
        sm_clock_mhz=told(lambda n, h: int(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM))),
        sm_clock_max_mhz=told(lambda n, h: int(n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM))),
        clock_events=told(clock_events_of),
    )


def _nothing(why: Missing) -> Driver:
    return Driver(version=why, cuda=why, gpus=why, nvml_error=why.reason)


def ask(nvml: Any, question: Callable[..., T], *args: Any) -> T | Missing:
    try:
        return question(nvml, *args)
    except nvml.NVMLError as error:
        return Missing(_reason(nvml, error), str(error))
    except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError, OSError, ctypes.ArgumentError) as error:
        # Another version of the package or of the library than this was written for; or an answer that makes no sense.
        return Missing("nvml-error", f"{type(error).__name__}: {error}")


def _reason(nvml: Any, error: Any) -> str:
    names = {getattr(nvml, name): reason for name, reason in REASONS.items() if hasattr(nvml, name)}
    return names.get(getattr(error, "value", None), "nvml-error")


def _version(nvml: Any) -> str:
    return text_of(nvml.nvmlSystemGetDriverVersion())


def _cuda(nvml: Any) -> str:
    version = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
    return f"{version // 1000}.{version % 1000 // 10}"


def _gpus(nvml: Any) -> list[Gpu]:
    count = int(nvml.nvmlDeviceGetCount())
    cards = [ask(nvml, _gpu, index) for index in range(count)]
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

    def told(question: Callable[[Any, Any], T]) -> T | Missing:
        return ask(nvml, question, handle)

    return replace(
        _moving(nvml, index),
        pci_bus_id=told(lambda n, h: text_of(n.nvmlDeviceGetPciInfo(h).busId)),
        capability=told(lambda n, h: "{}.{}".format(*n.nvmlDeviceGetCudaComputeCapability(h))),
        power_limit_w=told(power_limit_of),
        power_limit_default_w=told(lambda n, h: n.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1000),
        power_limit_max_w=told(lambda n, h: n.nvmlDeviceGetPowerManagementLimitConstraints(h)[1] / 1000),
        pstate=told(_pstate),
        link_width=told(lambda n, h: int(n.nvmlDeviceGetCurrPcieLinkWidth(h))),
        link_width_max=told(lambda n, h: int(n.nvmlDeviceGetMaxPcieLinkWidth(h))),
        link_generation=told(lambda n, h: int(n.nvmlDeviceGetCurrPcieLinkGeneration(h))),
        link_generation_max=told(lambda n, h: int(n.nvmlDeviceGetMaxPcieLinkGeneration(h))),
        ecc_uncorrected=told(_ecc_uncorrected),
        ecc_pending=told(_ecc_pending),
        remap_failed=told(lambda n, h: bool(n.nvmlDeviceGetRemappedRows(h)[3])),
        mig_enabled=told(lambda n, h: bool(n.nvmlDeviceGetMigMode(h)[0])),
        mig_devices=told(_mig_devices),
        compute_mode=told(lambda n, h: COMPUTE_MODES[n.nvmlDeviceGetComputeMode(h)]),
        persistence=told(lambda n, h: bool(n.nvmlDeviceGetPersistenceMode(h))),
        driver_model=told(lambda n, h: DRIVER_MODELS[n.nvmlDeviceGetDriverModel(h)[0]]),
        display_active=told(lambda n, h: bool(n.nvmlDeviceGetDisplayActive(h))),
        processes=told(processes_of),
    )


def power_limit_of(nvml: Any, handle: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetPowerManagementLimit(handle)) / 1000
    except nvml.NVMLError:
        # Laptops do not let one set it, but tell what is enforced.
        return float(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)) / 1000


def _pstate(nvml: Any, handle: Any) -> str | Missing:
    state = int(nvml.nvmlDeviceGetPerformanceState(handle))
    return Missing("not-reported") if state == UNKNOWN_PSTATE else f"P{state}"


def clock_events_of(nvml: Any, handle: Any) -> list[str]:
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
            found.append(text_of(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))))
    return found


def processes_of(nvml: Any, handle: Any) -> list[GpuProcess]:
    found: dict[int, GpuProcess] = {}
    running = list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    with contextlib.suppress(nvml.NVMLError):
        running += nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
    for process in running:
        pid, used = int(process.pid), process.usedGpuMemory
        # Under WDDM Windows owns the memory and the driver cannot tell.
        memory = Missing("nvml-not-supported") if used is None else int(used)
        found.setdefault(pid, GpuProcess(pid=pid, name=ask(nvml, _process_name, pid), memory_bytes=memory))
    return list(found.values())


def _process_name(nvml: Any, pid: int) -> str:
    """The program's name alone: its path and arguments are nobody's business."""
    name = text_of(nvml.nvmlSystemGetProcessName(pid)).replace("\\", "/").split(" -")[0]
    return os.path.basename(name.strip()) or name


def text_of(value: str | bytes) -> str:
    if not isinstance(value, str | bytes):
        raise TypeError(type(value).__name__)  # a failing library gives anything
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
