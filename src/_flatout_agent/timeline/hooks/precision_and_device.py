"""How a training computes: precision, device, compiled or not. Looked up in what is there; nothing is hooked for it."""

from __future__ import annotations

from typing import Any

MOST_NODES = 400  # of the graph behind the loss


def of_graph(loss: Any) -> dict[str, bool]:
    """The casts of autocast and the functions of torch.compile are nodes of the graph behind the loss. What a function with a
    backward pass of its own casts inside (compiled code, a replayed CUDA graph) does not show: then autocast is unknown.
    """
    seen: set[int] = set()
    waiting = [getattr(loss, "grad_fn", None)]
    autocast = compiled = opaque = False
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        name = type(node).__name__
        autocast = autocast or name.startswith("ToCopyBackward")
        compiled = compiled or "CompiledFunction" in name
        opaque = opaque or "BackwardCFunction" in {kind.__name__ for kind in type(node).__mro__}
        waiting += [following for following, _ in node.next_functions]
    return {"compiled": compiled} if opaque and not autocast else {"autocast": autocast, "compiled": compiled}


def of_optimizer(torch: Any, optimizer: Any) -> dict[str, Any]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not parameters:
        return {}
    first = parameters[0]
    told = {
        "parameters": sum(parameter.numel() for parameter in parameters),
        "dtype": str(first.dtype).replace("torch.", ""),
        "device": str(first.device),
    }
    if first.is_cuda:
        told["capability"] = list(torch.cuda.get_device_capability(first.device))
        told["tf32"] = tf32(torch)
    return told


def tf32(torch: Any) -> bool | None:
    """Asked of the core: the two Python interfaces complain when both are used in one process."""
    try:
        return bool(torch._C._get_cublas_allow_tf32())
    except Exception:
        return None
