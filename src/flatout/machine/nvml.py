"""The one door to NVML. Every answer is a value or a `Missing` with the driver's own reason; nothing raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flatout.base.records import Missing
from flatout.machine.model import Driver, Gpu

T = TypeVar("T")


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
        pynvml.nvmlShutdown()


def _nothing(why: Missing) -> Driver:
    return Driver(version=why, cuda=why, gpus=why, nvml_error=why.reason)


def _ask(nvml: Any, question: Callable[..., T], *args: Any) -> T | Missing:
    try:
        return question(nvml, *args)
    except nvml.NVMLError as error:
        return Missing(_reason(nvml, error), str(error))


def _reason(nvml: Any, error: Any) -> str:
    names = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "nvml-library-not-found",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "nvml-driver-not-loaded",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "nvml-version-mismatch",
        nvml.NVML_ERROR_NO_PERMISSION: "nvml-no-permission",
        nvml.NVML_ERROR_NOT_SUPPORTED: "nvml-not-supported",
        nvml.NVML_ERROR_GPU_IS_LOST: "nvml-gpu-lost",
    }
    return names.get(getattr(error, "value", None), "nvml-error")


def _version(nvml: Any) -> str:
    return _text(nvml.nvmlSystemGetDriverVersion())


def _cuda(nvml: Any) -> str:
    version = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
    return f"{version // 1000}.{version % 1000 // 10}"


def _gpus(nvml: Any) -> list[Gpu]:
    return [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = _ask(nvml, lambda n: n.nvmlDeviceGetMemoryInfo(handle))
    return Gpu(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        pci_bus_id=_ask(nvml, lambda n: _text(n.nvmlDeviceGetPciInfo(handle).busId)),
        memory_total_bytes=memory if isinstance(memory, Missing) else int(memory.total),
        memory_free_bytes=memory if isinstance(memory, Missing) else int(memory.free),
        capability=_ask(nvml, lambda n: "{}.{}".format(*n.nvmlDeviceGetCudaComputeCapability(handle))),
    )


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
