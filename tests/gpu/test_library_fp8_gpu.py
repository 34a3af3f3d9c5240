"""fp8 on a card that has units for it: near float64, really in float8, learning as bf16 does, no trace in a checkpoint.

Run with `pytest -m gpu tests/gpu/test_library_fp8_gpu.py`.
"""

import copy

import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.profiler import ProfilerActivity, profile

from flatout import TrainingAccelerator
from flatout.api import float8
from flatout.api.float8 import Float8

HAS_FLOAT8 = torch.cuda.is_available() and float8.obstacle(torch.device("cuda", 0)) is None

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_FLOAT8, reason="no CUDA device with float8"),
    pytest.mark.filterwarnings("ignore"),
]

LOSS = nn.CrossEntropyLoss()


def gap(found, wanted):
    return float((found.detach().double() - wanted.detach()).norm() / wanted.detach().norm())


def wide(width=1024, depth=4, classes=16):
    torch.manual_seed(0)
    blocks = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*blocks, nn.Linear(width, classes))


def begun(precision, model, lr=1e-3):
    accelerator = TrainingAccelerator({"device_id": 0, "precision": precision})
    return accelerator, *accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=lr))


@pytest.mark.parametrize("rows", [(16,), (512,), (4, 128)])
@pytest.mark.parametrize("sides", [(16, 16), (1024, 4096), (4096, 1024)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_are_near_those_of_float64(rows, sides, kind, bias):
    """In the norm: outputs to 5 %, gradients to 8 %, as on the processor."""
    torch.manual_seed(0)
    layer = nn.Linear(*sides, bias=bias, device="cuda")
    exact = copy.deepcopy(layer).double()
    taken = Float8()
    taken.is_on = True
    assert taken.take(nn.Sequential(layer)) == 1
    x = torch.randn(*rows, sides[0], device="cuda").to(kind).requires_grad_()
    twin = x.detach().double().requires_grad_()
    with torch.autocast("cuda", torch.bfloat16):
        found = layer(x)
    wanted = exact(twin)
    slope = torch.randn_like(found)
    found.backward(slope)
    wanted.backward(slope.double())
    assert taken.has_run
    assert gap(found, wanted) < 0.05
    assert gap(x.grad, twin.grad) < 0.08
    assert gap(layer.weight.grad, exact.weight.grad) < 0.08
    if bias:
        assert gap(layer.bias.grad, exact.bias.grad) < 0.01


def operations(precision):
    accelerator, model, optimizer = begun(precision, wide())
    x, y = torch.randn(512, 1024, device="cuda"), torch.randint(0, 16, (512,), device="cuda")

    def step():
        with accelerator.autocast():
            loss = LOSS(model(x), y)
        accelerator.backward(loss)
        accelerator.step(optimizer)

    step()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    averages = seen.key_averages()
    calls = sum(one.count for one in averages if one.key == "aten::_scaled_mm")
    kernels = [one.key for one in averages if one.device_type == torch.autograd.DeviceType.CUDA]
    return calls, kernels


def test_the_products_really_run_in_float8():
    """Five layers, each three times: forward, gradient of the input (not of the first layer's), gradient of the weight."""
    calls, kernels = operations("fp8")
    print(calls, [name for name in kernels if "gemm" in name.lower() or "e4m3" in name.lower() or "nvjet" in name.lower()])
    assert calls == 5 * 3 - 1
    plain, others = operations("bf16")
    assert plain == 0
    assert set(kernels) - set(others)


def course(precision, steps=150):
    """Which of the first sixteen numbers is the largest, from fresh numbers at each step."""
    accelerator, model, optimizer = begun(precision, wide(256))
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        x = torch.randn(512, 256, device="cuda")
        with accelerator.autocast():
            loss = LOSS(model(x), x[:, :16].argmax(1))
        accelerator.backward(loss)
        accelerator.step(optimizer)
        losses.append(loss.detach().float())
    assert accelerator.precision == precision
    found = torch.stack(losses)
    return [float(found[start : start + 25].mean()) for start in range(0, steps, 25)], accelerator


def test_it_learns_as_bf16_does():
    """The mean loss of every 25 steps within 0.05 and 5 % of bf16's."""
    bf16, _ = course("bf16")
    fp8, accelerator = course("fp8")
    print(bf16, fp8)
    assert accelerator._regime.float8.has_run
    assert fp8[-1] < 0.5 * fp8[0]
    for one, other in zip(bf16, fp8, strict=True):
        assert abs(one - other) < 0.05 + 0.05 * one, (bf16, fp8)


def test_a_checkpoint_is_that_of_a_plain_training(tmp_path):
    files = {}
    for precision in ("bf16", "fp8"):
        accelerator, model, optimizer = begun(precision, wide())
        x, y = torch.randn(64, 1024, device="cuda"), torch.randint(0, 16, (64,), device="cuda")
        with accelerator.autocast():
            loss = LOSS(model(x), y)
        accelerator.backward(loss)
        accelerator.step(optimizer)
        accelerator.save(tmp_path / f"{precision}.pt")
        files[precision] = torch.load(tmp_path / f"{precision}.pt", weights_only=True)["models"]["model-1"]
        assert all(type(module) in (nn.Linear, nn.GELU) for module in accelerator.unwrap(model))
    plain = {name: (part.shape, part.dtype) for name, part in files["bf16"].items()}
    assert {name: (part.shape, part.dtype) for name, part in files["fp8"].items()} == plain
    assert list(plain) == list(wide().state_dict())


def test_auto_decides_between_the_three_by_measurement():
    """Large enough that bf16 wins over float32 for sure; whether fp8 wins over bf16 is what is measured, and is said."""
    accelerator, model, optimizer = begun("auto", wide(8192, 4), lr=1e-5)
    x, y = torch.randn(8192, 8192, device="cuda"), torch.randint(0, 16, (8192,), device="cuda")
    for _ in range(300):
        with accelerator.autocast():
            loss = LOSS(model(x), y)
        accelerator.backward(loss)
        accelerator.step(optimizer)
        if accelerator._trial is None:
            break
    said = [note for note in accelerator.notes if "own steps" in note]
    print(said)
    assert len(said) == 2
    assert accelerator.precision == ("fp8" if "fp8 showed no clear speed-up" not in said[1] else "bf16")


def test_under_torch_compile():
    accelerator = TrainingAccelerator({"device_id": 0, "precision": "fp8", "compile_model": "default"})
    model = wide()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    torch.manual_seed(2)
    x, y = torch.randn(512, 1024, device="cuda"), torch.randint(0, 16, (512,), device="cuda")
    losses = []
    for _ in range(12):
        with accelerator.autocast():
            loss = LOSS(model(x), y)
        accelerator.backward(loss)
        accelerator.step(optimizer)
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.95 * losses[0]
