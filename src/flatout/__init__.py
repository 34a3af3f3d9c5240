"""flatout: why the GPU is idle, and how fast the script can really run, measured on this machine.

The names below are loaded when they are first touched: `import flatout` alone costs nothing and imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from flatout._version import __version__

if TYPE_CHECKING:  # for type checkers and editors only; at run time `__getattr__` below finds them
    from flatout.api.configuration import auto_optimize_config
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

__all__ = [
    "CUDAStatus",
    "DeviceSelectionResult",
    "DriverStatus",
    "GPUDiagnosticReport",
    "GPUDiagnosticTool",
    "GPUStatus",
    "HardwareStatus",
    "PyTorchStatus",
    "__version__",
    "auto_optimize_config",
]

_HOMES = dict.fromkeys((name for name in __all__ if name != "__version__"), "flatout.api.diagnosis")
_HOMES["auto_optimize_config"] = "flatout.api.configuration"


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'flatout' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
