"""What a process has set for itself that the results of fetching may depend on, beside all Python objects."""

from __future__ import annotations

import decimal
import os
import struct
import sys
from typing import Any

# What trusted packages keep in their modules and read as they fetch, with what stands there unless somebody sets it: a module
# that only one of the processes has imported counts as one where nothing was set.
FLAGS = {
    ("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES"): False,
    ("PIL.ImageFile", "MAXBLOCK"): 65536,
    ("PIL.Image", "MAX_IMAGE_PIXELS"): 89478485,
    ("PIL.GifImagePlugin", "LOADING_STRATEGY"): 0,
    ("PIL.TiffImagePlugin", "READ_LIBTIFF"): False,
    ("torchvision", "_image_backend"): "PIL",
    ("torchvision", "_video_backend"): "pyav",
}
SUBNORMAL: float = struct.unpack("<d", b"\1" + bytes(7))[0]  # by its bits: as text it would be read as 0 where they are flushed


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
        flags(),
        flushes_denormals(),
    )


def flags() -> list[str]:
    """Those that were set, of packages whose functions are taken as they are."""
    found = []
    for (module, name), usual in FLAGS.items():
        value = getattr(sys.modules.get(module), name, usual)
        if value != usual:
            found.append(f"{module}.{name}={value!r}")
    cv2 = sys.modules.get("cv2")
    if hasattr(cv2, "useOptimized") and not cv2.useOptimized():  # type: ignore[union-attr]
        found.append("cv2.useOptimized")
    return found


def flushes_denormals() -> tuple[bool, bool]:
    """Of this thread's processor: what it is given, and what comes out. Torch sets it and does not say so."""
    return SUBNORMAL * 2.0 == 0.0, sys.float_info.min * 0.5 == 0.0


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
