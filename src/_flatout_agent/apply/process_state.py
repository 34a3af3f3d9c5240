"""What a process has set for itself that the results of fetching may depend on, beside all Python objects."""

from __future__ import annotations

import decimal
import os
import sys
from typing import Any


def process_state(torch: Any) -> tuple[Any, ...]:
    """Plain values. What a worker sets anew as it begins (its seeds, its one thread) is left out."""
    numpy = sys.modules.get("numpy")
    return (
        sorted(os.environ.items()),
        os.getcwd(),
        decimal.getcontext().prec,
        sorted(numpy.geterr().items()) if numpy is not None else None,
        str(torch.get_default_dtype()),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        str(torch.get_autocast_dtype("cpu")),
        torch.are_deterministic_algorithms_enabled(),
        cpu_precision(torch),
        torch._C._get_mkldnn_enabled(),
    )


def cpu_precision(torch: Any) -> tuple[Any, ...]:
    """Of float32 products, on the processor. Torch from 2.9 on refuses to answer by the old name once the new one was used."""
    mkldnn = torch.backends.mkldnn
    parts: list[Any] = [getattr(mkldnn, name, None) for name in ("matmul", "conv", "rnn")]
    if all(hasattr(part, "fp32_precision") for part in parts):
        return tuple(part.fp32_precision for part in parts)
    return (torch.get_float32_matmul_precision(),)


def changes_calls(torch: Any) -> bool:
    """Whether a mode of the script's (a default device, a context of its own) stands before torch's functions."""
    return bool(torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack())
