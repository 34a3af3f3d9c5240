"""A run that ended in an error: what can be told of it that the message does not say.

Python keeps the exception that ended the script, with its frames, until after the exit handlers: nothing is hooked.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any, Iterator

MOST_NAMES = 24
TWO_DEVICES = (
    "Expected all tensors to be on the same device",
    "is on cuda:",
    "Input type (torch.cuda",
    "Input type (torch.Float",
)


def story(torch: Any) -> tuple[str, dict[str, Any]] | None:
    """The journal line for the error that ended the script: its kind and fields; None where there is nothing to add."""
    error = getattr(sys, "last_value", None)
    if error is None or torch is None:
        return None
    if type(error).__name__ == "OutOfMemoryError" and torch.cuda.is_initialized():
        return "oom", {"message": str(error)[:500], **_memory(torch), "holders": _holders(torch)}
    if isinstance(error, RuntimeError) and any(words in str(error) for words in TWO_DEVICES):
        frame, site = _where(error, os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
        return "devices", {"message": str(error)[:500], "site": site, "tensors": _tensors(torch, frame) if frame else []}
    return None


def _memory(torch: Any) -> dict[str, Any]:
    device = torch.cuda.current_device()
    return {
        "memory": {
            "allocated": torch.cuda.memory_allocated(device),
            "peak": torch.cuda.max_memory_allocated(device),
            "reserved": torch.cuda.memory_reserved(device),
            "total": torch.cuda.get_device_properties(device).total_memory,
        }
    }


def _holders(torch: Any) -> list[dict[str, Any]]:
    """What holds the memory, largest first; what is left over are mostly the activations kept for the backward pass."""
    things = gc.get_objects()  # the script is over: it may take a moment. By type: `isinstance` would wake lazy proxies
    optimizers = [thing for thing in things if issubclass(type(thing), torch.optim.Optimizer)]
    modules = [thing for thing in things if issubclass(type(thing), torch.nn.Module)]
    parameters = {id(p): p for module in modules for p in module.parameters(recurse=False)}
    parameters.update({id(p): p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]})
    gradients = [p.grad for p in parameters.values() if p.grad is not None]
    state = [
        value
        for optimizer in optimizers
        for entry in optimizer.state.values()
        for value in (entry.values() if isinstance(entry, dict) else ())
        if isinstance(value, torch.Tensor)
    ]
    held = {"parameters": _bytes(parameters.values()), "gradients": _bytes(gradients), "optimizer": _bytes(state)}
    held["activations"] = max(0, torch.cuda.memory_allocated() - sum(held.values()))
    return [{"what": what, "bytes": size} for what, size in sorted(held.items(), key=lambda item: -item[1])]


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor.is_cuda)


def _where(error: BaseException, torch_folder: str) -> tuple[Any, str]:
    """The innermost frame of the script itself."""
    found: Any = None
    site = ""
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith((torch_folder, "<")) and "site-packages" not in name and "dist-packages" not in name:
            found, site = trace.tb_frame, f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found, site


def _tensors(torch: Any, frame: Any) -> list[dict[str, str]]:
    """The tensors within sight of that line, by the names that the script gives them."""
    told: dict[str, str] = {}
    for name, value in list(frame.f_locals.items()):
        for path, tensor in _inside(torch, name, value):
            if len(told) < MOST_NAMES:
                told[path] = str(tensor.device)
    return [{"name": name, "device": device} for name, device in told.items()]


def _inside(torch: Any, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module):
        yield from _of_module(torch, name, value)
    elif isinstance(value, (list, tuple, dict)):
        parts = list(value.items() if isinstance(value, dict) else enumerate(value))[:MOST_NAMES]
        yield from ((f"{name}[{key!r}]", part) for key, part in parts if isinstance(part, torch.Tensor))


def _of_module(torch: Any, name: str, module: Any) -> Iterator[tuple[str, Any]]:
    seen = set()
    for path, parameter in module.named_parameters():
        if str(parameter.device) not in seen:  # one of each device says it all
            seen.add(str(parameter.device))
            yield f"{name}.{path}", parameter
    for path, attribute in vars(module).items():
        if isinstance(attribute, torch.Tensor):
            yield f"{name}.{path}", attribute
