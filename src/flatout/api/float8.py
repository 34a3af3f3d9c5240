"""fp8: linear layers multiply in float8, everything else runs in bf16.

Forward in e4m3, gradients in e5m2, one scale for each tensor, found anew each time it is used. Weights stay what they are:
optimizer, checkpoints and the parameters' identities know nothing of it. While it is on, a layer is of another class, and
its copies and pickles are plain.
"""

from __future__ import annotations

import copyreg
import math
from typing import Any

from flatout.api.torch_part import torch

LEAST_CAPABILITY = (8, 9)  # Ada and Hopper: the first with units for it
MULTIPLE = 16  # of both sides of a weight, and of the rows that go in
TINY = 1e-12  # the largest of a tensor of zeros, so that nothing is divided by zero
WEIGHTS = (torch.float32, torch.bfloat16, torch.float16)


def obstacle(device: Any) -> tuple[str, dict[str, Any]] | None:
    """Why there is no fp8 on this device: the key of the sentence and its figures. None: there is."""
    if not hasattr(torch, "_scaled_mm") or not hasattr(torch, "float8_e4m3fn"):
        return "library.fp8-torch", {"found": torch.__version__}
    if device.type != "cuda" or torch.version.cuda is None:
        return "library.fp8-device", {"device": str(device), "found": "—"}
    capability = torch.cuda.get_device_capability(device)
    if tuple(capability) < LEAST_CAPABILITY:
        name = torch.cuda.get_device_name(device)
        return "library.fp8-device", {"device": name, "found": ".".join(map(str, capability))}
    return None


def qualifies(module: Any) -> bool:
    """Plain linear layers alone: a subclass, or one whose forward was replaced, may do something else."""
    return (
        type(module) is torch.nn.Linear
        and "forward" not in vars(module)
        and module.in_features % MULTIPLE == 0
        and module.out_features % MULTIPLE == 0
        and module.weight.dtype in WEIGHTS
    )


class Float8:
    """The layers of one training that compute in float8 while `is_on`, inside autocast."""

    def __init__(self) -> None:
        self.is_on = False
        self.has_run = False
        self.odd_rows = 0  # that went into a layer and are no multiple of 16: such a product runs in bf16
        self.layers: list[Any] = []
        self._is_put_on = False
        self._kind = type("Float8Linear", (_Float8Linear,), {"float8": self})

    def take(self, model: Any) -> int:
        """The layers of this model that qualify are ours from now on; how many."""
        found = [module for module in model.modules() if qualifies(module)]
        self.layers += found
        self.put_on()
        return len(found)

    def put_on(self) -> None:
        for layer in self.layers:
            layer.__class__ = self._kind
        self._is_put_on = True

    def take_off(self) -> None:
        """Plain layers again, until the next forward pass of the training."""
        for layer in self.layers:
            layer.__class__ = torch.nn.Linear
        self._is_put_on = False

    def stay_on(self) -> None:
        if not self._is_put_on:
            self.put_on()


class _Float8Linear(torch.nn.Linear):  # type: ignore[misc]  # torch is Any to the checker
    float8: Float8

    def forward(self, x: Any) -> Any:
        float8 = self.float8
        # Autocast, not a flag of ours, says whether this is inside: recomputing under checkpointing restores it.
        if not float8.is_on or not torch.is_autocast_enabled(x.device.type):
            return torch.nn.functional.linear(x, self.weight, self.bias)
        rows = x.numel() // self.in_features
        fits = rows % MULTIPLE == 0 and rows > 0
        if not torch.compiler.is_compiling():
            if fits:
                float8.has_run = True
            elif rows:
                float8.odd_rows = rows
        if not fits:
            return torch.nn.functional.linear(x, self.weight, self.bias)
        return _Product.apply(x, self.weight, self.bias)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copied and pickled as the layer that it was."""
        return (copyreg._reconstructor, (torch.nn.Linear, object, None), super().__reduce_ex__(protocol)[2])  # type: ignore[attr-defined]


def quantised(tensor: Any, dtype: Any) -> tuple[Any, Any]:
    """In float8, and what that is to be multiplied by. Nothing of it is read by the host."""
    largest = torch.linalg.vector_norm(tensor, ord=math.inf).float().clamp(min=TINY)
    scale = largest / torch.finfo(dtype).max
    return (tensor * scale.reciprocal()).to(dtype).contiguous(), scale


def product(one: tuple[Any, Any], other: tuple[Any, Any], dtype: Any, bias: Any = None, is_fast: bool = False) -> Any:
    """`one` by rows times the transpose of `other`, which is by rows too: as the units want them."""
    found = torch._scaled_mm(
        one[0], other[0].t(), scale_a=one[1], scale_b=other[1], bias=bias, out_dtype=dtype, use_fast_accum=is_fast
    )
    return found[0] if isinstance(found, tuple) else found  # before torch 2.5 with the largest of the result


def turned(quantity: tuple[Any, Any]) -> tuple[Any, Any]:
    return quantity[0].t().contiguous(), quantity[1]


class _Product(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to the checker
    """y = x Wᵀ + b. What is kept for the backward pass is float8 as well."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any) -> Any:
        rows = quantised(x.reshape(-1, x.shape[-1]), torch.float8_e4m3fn)
        weights = quantised(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(*rows, *weights)
        ctx.kinds = (x.dtype, weight.dtype, None if bias is None else bias.dtype)
        ctx.shape = x.shape
        low = None if bias is None else bias.to(torch.bfloat16)
        found = product(rows, weights, torch.bfloat16, low, is_fast=True)
        return found.reshape(*x.shape[:-1], weight.shape[0])

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch is Any to the checker
    def backward(ctx: Any, grad: Any) -> tuple[Any, Any, Any]:
        x, x_scale, weight, weight_scale = ctx.saved_tensors
        x_kind, weight_kind, bias_kind = ctx.kinds
        grad = grad.reshape(-1, grad.shape[-1])
        slopes = quantised(grad, torch.float8_e5m2)
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = product(slopes, turned((weight, weight_scale)), x_kind).reshape(ctx.shape)
        if ctx.needs_input_grad[1]:
            of_weight = product(turned(slopes), turned((x, x_scale)), weight_kind)
        if bias_kind is not None and ctx.needs_input_grad[2]:
            of_bias = grad.sum(0, dtype=torch.float32).to(bias_kind)
        return of_x, of_weight, of_bias
