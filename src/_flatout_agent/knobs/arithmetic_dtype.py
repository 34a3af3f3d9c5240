"""Looks into one forward pass, operation by operation, for the dtype that the arithmetic was done in."""

from __future__ import annotations

from typing import Any

from _flatout_agent.knobs.module_wrapper import Run

CALLS = 1

# What multiplies: a copy or a cast in low precision proves nothing.
ARITHMETIC = ("mm", "addmm", "bmm", "baddbmm", "linear", "convolution", "attention", "lstm", "rnn", "gru", "matmul")


class Witness:
    """Slow, so it sees one call; compiled code is not looked into (it would be compiled again)."""

    def __init__(self, torch: Any, dtype: Any) -> None:
        self._torch = torch
        self._dtype = dtype
        self._calls = 0
        self.operations: set[str] = set()

    def has_seen_enough(self) -> bool:
        return self._calls >= CALLS

    def watch(self, inner: Run, module: Any, args: Any, kwargs: Any) -> Any:
        self._calls += 1
        if getattr(inner, "compiled", False):
            return inner(module, args, kwargs)
        with self._mode():
            return inner(module, args, kwargs)

    def _mode(self) -> Any:
        from torch.utils._python_dispatch import TorchDispatchMode

        tensor, dtype, seen = self._torch.Tensor, self._dtype, self.operations

        class Look(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                answer = func(*args, **(kwargs or {}))
                first = answer[0] if isinstance(answer, (tuple, list)) and answer else answer
                if isinstance(first, tensor) and first.dtype is dtype:
                    name = func.overloadpacket.__name__
                    if any(part in name for part in ARITHMETIC):
                        seen.add(name)
                return answer

        return Look()
