"""Functional test of the GPU: do the operations of a training give right results here? On the CPU: which of them work.

Results are compared with the same computation in float64 on the processor. Tolerances are relative to the largest value, wide
enough for TF32, which torch uses in convolutions by itself.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flatout.base.words import Words, choose_language

SINGLE = 5e-3
HALF = 5e-2

# A check's answer: its status, the code of its sentence (`gpu-check.<code>`) and the values in it.
Answer = tuple[str, str, dict[str, object]]

OK, FAILED, SKIPPED = "ok", "failed", "skipped"


@dataclass(frozen=True)
class GPUCheck:
    name: str
    status: str  # ok, failed, skipped
    sentence: str


@dataclass
class GPUCheckReport:
    device: str  # "cuda:0", "cpu"
    device_name: str
    has_gpu: bool
    checks: list[GPUCheck] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """On a GPU, and nothing failed: where there is none the processor's results are no proof of one."""
        return self.has_gpu and all(check.status != FAILED for check in self.checks)

    def __str__(self) -> str:
        words = Words(choose_language(None))
        head = words("gpu-check.device", name=self.device_name) if self.has_gpu else words("gpu-check.no-gpu")
        lines = [f"[{words(f'gpu-check.status-{check.status}')}] {check.sentence}" for check in self.checks]
        return "\n".join([head, *lines])


def check_gpu(device: int = 0, *, compile_too: bool = True, language: str | None = None) -> GPUCheckReport:
    """Basic operations, mixed precision, compilation, data loading, several GPUs. `device` is torch's index."""
    from flatout.api.torch_part import torch

    words = Words(choose_language(language))
    has_gpu = bool(torch.cuda.is_available())
    place = torch.device("cuda", device) if has_gpu else torch.device("cpu")
    name = torch.cuda.get_device_name(place) if has_gpu else "CPU"
    report = GPUCheckReport(str(place), name, has_gpu)
    checks: dict[str, Callable[[Any, Any], Answer]] = {
        "operations": _operations,
        "training": _training,
        "bf16": partial(_mixed_precision, dtype="bf16"),
        "fp16": partial(_mixed_precision, dtype="fp16"),
        "compile": _compiles if compile_too else _not_asked,
        "loading": _loading,
        "several": _several,
    }
    for title, check in checks.items():
        try:
            status, code, params = check(torch, place)
        except Exception as error:  # noqa: BLE001 - one check that fails is a result, and the others still say something
            status, code, params = FAILED, "error", {"detail": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        report.checks.append(GPUCheck(title, status, f"{words(f'gpu-check.{title}')}: {words(f'gpu-check.{code}', **params)}"))
    return report


# -- the checks -----------------------------------------------------------------------------------------------------


def _operations(torch: Any, device: Any) -> Answer:
    """What nearly every model is made of, forward and backward."""
    functions = {
        "matmul": lambda a, b: a @ b,
        "conv2d": lambda a, b: torch.nn.functional.conv2d(a.reshape(1, 1, 64, 64), b[:3, :3].reshape(1, 1, 3, 3)),
        "softmax": lambda a, b: torch.softmax(a, 1) * b,
        "reduction": lambda a, b: (a * b).sum(0) / a.std(),
        "layer_norm": lambda a, b: torch.nn.functional.layer_norm(a, (64,)) + b,
    }
    worst = 0.0
    for name, function in functions.items():
        error = _against_double(torch, device, function)
        if not error <= SINGLE:
            return FAILED, "wrong", {"what": name, "error": f"{error:.1e}", "limit": f"{SINGLE:.0e}"}
        worst = max(worst, error)
    return OK, "right", {"count": len(functions), "error": f"{worst:.1e}"}


def _against_double(torch: Any, device: Any, function: Callable[[Any, Any], Any]) -> float:
    generator = torch.Generator().manual_seed(0)
    plain = [torch.randn(64, 64, generator=generator, dtype=torch.float64) for _ in range(2)]
    results = []
    for kind, place in ((torch.float64, "cpu"), (torch.float32, device)):
        a, b = (value.to(place, kind, copy=True).requires_grad_() for value in plain)
        out = function(a, b)
        out.square().sum().backward()
        results.append([tensor.detach().double().cpu() for tensor in (out, a.grad, b.grad)])
    return max(_error(one, other) for one, other in zip(*results, strict=True))


def _error(wanted: Any, found: Any) -> float:
    """Relative to the largest value; not a number where the result is none."""
    return float((wanted - found).abs().max() / wanted.abs().max().clamp_min(1e-12))


def _training(torch: Any, device: Any) -> Answer:
    """Twenty steps: the loss falls as it does in float64."""
    exact = _losses(torch, torch.device("cpu"), torch.float64)[-1]
    first, *_, last = _losses(torch, device, torch.float32)
    if not last < first or abs(last - exact) > HALF * max(abs(exact), first):
        return FAILED, "not-learning", {"first": f"{first:.4f}", "last": f"{last:.4f}", "exact": f"{exact:.4f}"}
    return OK, "learns", {"first": f"{first:.4f}", "last": f"{last:.4f}"}


def _losses(torch: Any, device: Any, kind: Any, autocast: Any = None, scaler: Any = None) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(64, size, generator=generator, dtype=torch.float64).to(device, kind) for size in (16, 4))
    weights = [torch.randn(*shape, generator=generator, dtype=torch.float64) / 4 for shape in ((16, 32), (32, 4))]
    parameters = [weight.to(device, kind).requires_grad_() for weight in weights]
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    told = []
    for _ in range(20):
        with torch.autocast(device.type, autocast, enabled=autocast is not None):
            out = torch.tanh(x @ parameters[0]) @ parameters[1]
        loss = torch.nn.functional.mse_loss(out.to(kind), y)
        optimizer.zero_grad()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        told.append(float(loss.detach()))
    return told


def _mixed_precision(torch: Any, device: Any, dtype: str) -> Answer:
    if device.type == "cuda" and dtype == "bf16" and not torch.cuda.is_bf16_supported():
        return SKIPPED, "no-bf16", {}
    if device.type == "cpu" and dtype == "fp16":
        return SKIPPED, "needs-gpu", {}
    scaler = torch.amp.GradScaler(device.type) if dtype == "fp16" else None
    kind = torch.bfloat16 if dtype == "bf16" else torch.float16
    plain = _losses(torch, device, torch.float32)
    low = _losses(torch, device, torch.float32, kind, scaler)
    # A scaler begins too high on purpose and leaves some steps out: then the loss is behind, not wrong.
    if not low[-1] < low[0] or (scaler is None and abs(low[-1] - plain[-1]) > HALF * plain[0]):
        return FAILED, "not-learning", {"first": f"{low[0]:.4f}", "last": f"{low[-1]:.4f}", "exact": f"{plain[-1]:.4f}"}
    return OK, "learns", {"first": f"{low[0]:.4f}", "last": f"{low[-1]:.4f}"}


def _compiles(torch: Any, device: Any) -> Answer:
    if device.type != "cuda":
        return SKIPPED, "needs-gpu", {}

    def function(x: Any) -> Any:
        return (torch.sin(x) * x + 1).sum(1)

    x = torch.randn(64, 64, device=device)
    try:
        found = torch.compile(function)(x)
    except Exception as error:  # noqa: BLE001 - Triton, a compiler, Dynamo: whatever is missing is named in it
        detail = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        # No failure of the GPU: trainings run without it.
        return SKIPPED, "no-compile-windows" if platform.system() == "Windows" else "no-compile", {"detail": detail}
    finally:
        torch._dynamo.reset()
    error_found = _error(function(x).double().cpu(), found.double().cpu())
    if not error_found <= SINGLE:
        return FAILED, "wrong", {"what": "torch.compile", "error": f"{error_found:.1e}", "limit": f"{SINGLE:.0e}"}
    return OK, "compiled", {"error": f"{error_found:.1e}"}


def _not_asked(torch: Any, device: Any) -> Answer:
    del torch, device
    return SKIPPED, "not-asked", {}


def _loading(torch: Any, device: Any) -> Answer:
    """Pinned batches from two workers, copied without blocking: the right ones in the right order."""
    data = torch.arange(256.0).reshape(64, 4)
    dataset = torch.utils.data.TensorDataset(data)
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=2, pin_memory=device.type == "cuda")
    arrived = torch.cat([rows.to(device, non_blocking=True) for (rows,) in loader])
    if not torch.equal(arrived.cpu(), data):
        return FAILED, "loading-wrong", {}
    return OK, "loading-right", {"batches": 8}


def _several(torch: Any, device: Any) -> Answer:
    count = torch.cuda.device_count() if device.type == "cuda" else 0
    if count < 2:
        return SKIPPED, "one-gpu", {"count": count}
    x = torch.randn(256, 256, generator=torch.Generator().manual_seed(2))
    for index in range(count):
        there = x.to(torch.device("cuda", index))
        if not torch.equal(there.to(device).cpu(), x):
            return FAILED, "several-wrong", {"index": index}
    return OK, "several-right", {"count": count}
