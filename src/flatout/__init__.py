"""flatout: why the GPU is idle, and how fast the script can really run, measured on this machine.

The names below are loaded when they are first touched: `import flatout` alone costs nothing and imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from flatout._version import __version__

if TYPE_CHECKING:  # for type checkers and editors only; at run time `__getattr__` below finds them
    from flatout.api.accelerator import TrainingAccelerator
    from flatout.api.data_loading import OptimizedDataLoader
    from flatout.api.diagnosis import (
        CUDAStatus,
        DeviceSelectionResult,
        DriverStatus,
        GPUDiagnosticReport,
        GPUDiagnosticTool,
        GPUStatus,
        HardwareStatus,
        PyTorchStatus,
    )
    from flatout.api.training_config import AcceleratedConfig, TrainingConfig

__all__ = [
    "AcceleratedConfig",
    "CUDAStatus",
    "DeviceSelectionResult",
    "DriverStatus",
    "GPUDiagnosticReport",
    "GPUDiagnosticTool",
    "GPUStatus",
    "HardwareStatus",
    "OptimizedDataLoader",
    "PyTorchStatus",
    "TrainingAccelerator",
    "TrainingConfig",
    "__version__",
]

# Where each name lives, by the module under flatout.api; the rest is the doctor's.
_MODULES = {
    "accelerator": ("TrainingAccelerator",),
    "data_loading": ("OptimizedDataLoader",),
    "training_config": ("AcceleratedConfig", "TrainingConfig"),
}
_HOMES = dict.fromkeys((name for name in __all__ if name != "__version__"), "flatout.api.diagnosis")
_HOMES |= {name: f"flatout.api.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'flatout' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
