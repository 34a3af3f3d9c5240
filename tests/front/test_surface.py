"""The public surface, frozen: changing a command, a flag, an exported name or a knob is a decision, made here."""

import importlib.util

import pytest

import flatout
from flatout.api import adapters
from flatout.cli import main
from flatout.cli.commandline import Context
from flatout.knobs.catalogue import KNOBS

NEED_TORCH = ("OptimizedDataLoader", "TrainingAccelerator")  # even to be looked at

COMMANDS = {
    "doctor": {"--lang", "--python", "--json", "--save", "--from", "--verbose", "-v", "--help"},
    "run": {
        "--lang",
        "--python",
        "--gpu-id",
        "--gpu-memory-fraction",
        "--profile",
        "--no-profile",
        "--safe",
        "--mixed-precision",
        "--compile",
        "--batch-size",
        "--workers",
        "--pin-memory",
        "--no-pin-memory",
        "--knob",
        "--auto",
        "--bisect",
        "--deep",
        "--json",
        "--quiet",
        "-q",
        "--help",
    },
    "tune": {
        "--lang",
        "--python",
        "--budget",
        "--steps-planned",
        "--only",
        "--skip",
        "--allow",
        "--batch",
        "--batch-arg",
        "--lr-rule",
        "--lr-arg",
        "--gpu-memory-fraction",
        "--resume",
        "--dry-run",
        "--allow-network",
        "--no-sandbox",
        "--no-parity",
        "--config",
        "--output",
        "-o",
        "--force",
        "--key",
        "--no-insert",
        "--preset",
        "--card",
        "--explore",
        "--json",
        "--help",
    },
    "watch": {"--lang", "--once", "--for", "--until", "--notify", "--plain", "--json", "--help"},
    "facts": {"--lang", "--python", "--json", "--help"},
    "explain": {"--lang", "--help"},
}


def test_commands_and_flags():
    context = Context(main.flatout)
    assert set(main.flatout.list_commands(context)) == set(COMMANDS)
    for name, flags in COMMANDS.items():
        command = main.flatout.get_command(context, name)
        names = {
            flag
            for parameter in command.get_params(Context(command))
            for flag in [*parameter.opts, *parameter.secondary_opts]
            if flag.startswith("-")
        }
        assert names == flags, name


def test_exported_names():
    assert flatout.__all__ == [
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
        "auto_optimize_config",
    ]
    for name in flatout.__all__:
        if name in NEED_TORCH and importlib.util.find_spec("torch") is None:
            with pytest.raises(ImportError, match="needs PyTorch"):
                getattr(flatout, name)
        else:
            assert getattr(flatout, name) is not None
    assert dir(flatout) == flatout.__all__


def test_adapters():
    assert adapters.__all__ == [
        "Arguments",
        "LeftOut",
        "accelerate_arguments",
        "lightning_arguments",
        "loader_arguments",
        "transformers_arguments",
    ]


def test_knobs():
    assert [knob.name for knob in KNOBS] == [
        "precision",
        "tf32",
        "cudnn_benchmark",
        "allocator",
        "channels_last",
        "fused_optimizer",
        "compile",
        "workers",
        "persistent_workers",
        "prefetch_factor",
        "pin_memory",
        "non_blocking",
        "device_prefetch",
        "deferred_item",
        "cpu_threads",
        "gc_policy",
        "checkpointing",
        "batch_size",
    ]
