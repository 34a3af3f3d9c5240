"""Whether something of the script's listens to torch's operations just now: then we start none that it would hear."""

from __future__ import annotations

from typing import Any


class Listeners:
    """A dispatch mode (a FLOP counter, fake tensors, a mode of the script's own) or torch's profiler."""

    def __init__(self, torch: Any) -> None:
        self._modes = torch._C._len_torch_dispatch_stack
        self._profiling = torch._C._autograd._profiler_enabled

    def hear(self) -> bool:
        return bool(self._modes() or self._profiling())
