"""flatout: why the GPU is idle, and how fast the script can really run, measured on this machine.

The names below are loaded when they are first touched: `import flatout` alone costs nothing and imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from flatout._version import __version__

if TYPE_CHECKING:  # for type checkers and editors only; at run time `__getattr__` below finds them
    from flatout.api.accelerator import TrainingAccelerator
    from flatout.api.analyzer import (
        ComparisonResult,
        GPUPerformanceAnalyzer,
        MemoryMetrics,
        PerformanceMetrics,
        UtilizationMetrics,
    )
    from flatout.api.batch_size import BatchSizeOptimizer, BatchSizeStatistics
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
    from flatout.api.monitor import PerformanceMonitor
    from flatout.api.optimizer import GPUOptimizer, MemoryConfig, MixedPrecisionConfig, OptimizedDevice
    from flatout.api.performance import PerformanceReport
    from flatout.api.training_config import AcceleratedConfig, TrainingConfig

__all__ = [
    "AcceleratedConfig",
    "BatchSizeOptimizer",
    "BatchSizeStatistics",
    "CUDAStatus",
    "ComparisonResult",
    "DeviceSelectionResult",
    "DriverStatus",
    "GPUDiagnosticReport",
    "GPUDiagnosticTool",
    "GPUOptimizer",
    "GPUPerformanceAnalyzer",
    "GPUStatus",
    "HardwareStatus",
    "MemoryConfig",
    "MemoryMetrics",
    "MixedPrecisionConfig",
    "OptimizedDataLoader",
    "OptimizedDevice",
    "PerformanceMetrics",
    "PerformanceMonitor",
    "PerformanceReport",
    "PyTorchStatus",
    "TrainingAccelerator",
    "TrainingConfig",
    "UtilizationMetrics",
    "__version__",
]

# Where a name lives, if not in `flatout.api.diagnosis`.
_HOMES = {
    "BatchSizeOptimizer": "batch_size",
    "BatchSizeStatistics": "batch_size",
    "ComparisonResult": "analyzer",
    "GPUPerformanceAnalyzer": "analyzer",
    "MemoryMetrics": "analyzer",
    "PerformanceMetrics": "analyzer",
    "UtilizationMetrics": "analyzer",
    "AcceleratedConfig": "training_config",
    "GPUOptimizer": "optimizer",
    "MemoryConfig": "optimizer",
    "MixedPrecisionConfig": "optimizer",
    "OptimizedDataLoader": "data_loading",
    "OptimizedDevice": "optimizer",
    "PerformanceMonitor": "monitor",
    "PerformanceReport": "performance",
    "TrainingAccelerator": "accelerator",
    "TrainingConfig": "training_config",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'flatout' has no attribute {name!r}")
    return getattr(importlib.import_module(f"flatout.api.{_HOMES.get(name, 'diagnosis')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
