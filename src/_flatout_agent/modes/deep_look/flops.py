"""Arithmetic of one step: operations by torch's own formulas, and the bytes that its operators read and write.

A dispatch mode of our own instead of `FlopCounterMode`, whose module tracker hooks every module of the process, complains on
standard error where modules call themselves, and decomposes operators; here each runs exactly as it would.
"""

from __future__ import annotations

import sys
from typing import Any, Iterator

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.timeline.event_buffer import Tape

CONVOLUTIONS = ("convolution", "cudnn_convolution")


class FlopLook:
    name = "flops"
    steps = 1
    restarts = True

    def __init__(self, torch: Any, tape: Tape) -> None:
        self._torch = torch
        self._tape = tape
        self._counting: Any = None

    def refusal(self) -> str | None:
        return "compiled" if self._tape.dynamo or has_compiled() else None

    def begin(self) -> None:
        self._counting = counting_mode(self._torch)
        self._counting.__enter__()

    def again(self) -> None:
        self._counting.forget()

    def end(self, steps: int) -> dict[str, Any]:
        counted = self._leave()
        if self.refusal() is not None:
            return {"reason": "compiled"}
        if not counted.flops:
            return {"reason": "nothing-counted"}
        by_dtype = {name: flops / steps for name, flops in counted.flops.items()}
        return {
            "flops": sum(by_dtype.values()),
            "by_dtype": by_dtype,
            "bytes": counted.bytes / steps,
            "operators": counted.calls,
        }

    def abandon(self) -> None:
        if self._counting is not None:
            self._leave()

    def leave(self) -> None:
        pass

    def _leave(self) -> Any:
        from torch.utils import _python_dispatch

        counting = self._counting
        if _python_dispatch._get_current_dispatch_mode() is not counting:
            counting.closed = True
            raise RuntimeError("another dispatch mode lies on top")  # ours stays below it, and counts no more
        self._counting = None
        counting.__exit__(None, None, None)
        return counting


def has_compiled() -> bool:
    """Compiled code guards on the modes around it: ours would make it compile again. Asked of Dynamo's own count, too."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None) or {}
    return bool((counters.get("frames") or {}).get("ok"))  # by `get`: it makes what is asked for by key


def counting_mode(torch: Any) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Counting(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.closed = False
            self._views: dict[Any, bool] = {}
            self.forget()

        def forget(self) -> None:
            self.flops: dict[str, int] = {}
            self.bytes = 0
            self.calls = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            out = func(*args, **kwargs)
            if self.closed:
                return out
            try:
                self._count(func, args, kwargs, out)
            except Exception as error:
                fault("deep.flops", error)
            return out

        def _count(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
            self.calls += 1
            formula = flop_registry.get(func._overloadpacket)
            if formula is not None:
                name = rate_name(torch, func, args)
                self.flops[name] = self.flops.get(name, 0) + int(formula(*args, **kwargs, out_val=out))
            view = self._views.get(func)
            if view is None:
                view = self._views[func] = is_view(func)
            if not view:
                self.bytes += sum(part.numel() * part.element_size() for part in tensors(torch, (args, kwargs, out)))

    return Counting()


def is_view(func: Any) -> bool:
    """It gives a tensor that lies in another's memory, and moves nothing."""
    return any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)


def rate_name(torch: Any, func: Any, args: Any) -> str:
    """In whose rate the device does it: the operands' type, or TF32 where the script allows it for fp32."""
    first = next(tensors(torch, args), None)
    if first is None:
        return "unknown"
    name = str(first.dtype).replace("torch.", "")
    if name == "float32" and first.is_cuda:
        of_cudnn = func._overloadpacket.__name__.startswith(CONVOLUTIONS)
        allowed = torch._C._get_cudnn_allow_tf32() if of_cudnn else torch._C._get_cublas_allow_tf32()
        return "tf32" if allowed else name
    return name


def tensors(torch: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors(torch, part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors(torch, part)
