"""The library on a real card: the contract of a device, batches that do not fit, five times the processor.

Run with `pytest -m gpu`.
"""

import copy
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "api"))
from contract import DeviceContract
from trainings import LOSS

sys.path.pop(0)

from flatout import TrainingAccelerator
from flatout.api.errors import ConfigurationError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]

GIB = 2**30


class TestCuda(DeviceContract):
    config = {"device_id": 0}  # noqa: RUF012


def wide(width=4096, depth=8):
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def test_twice_too_large_under_six_gib_trains_through_with_the_same_gradients():
    """The cap imitates a 6 GB card's memory, not its speed. Gradients to 1e-3 of their norm: another order of sums, no TF32."""
    total = torch.cuda.get_device_properties(0).total_memory
    model = wide(512, 16)
    rows = 131072  # 131072 x 512 x 4 bytes x 33 activations: about twice what is left of 6 GiB, and few operations
    x, y = torch.randn(rows, 512, device="cuda"), torch.randint(0, 10, (rows,), device="cuda")
    whole = copy.deepcopy(model).cuda()
    LOSS(whole(x), y).backward()
    expected = [parameter.grad.cpu() for parameter in whole.parameters()]
    x, y = x.cpu(), y.cpu()
    del whole
    torch.cuda.empty_cache()
    try:
        accelerator = TrainingAccelerator({"device_id": 0, "gpu_memory_fraction": 6 * GIB / total})
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        model, optimizer = accelerator.prepare(model, optimizer)
        batch = (x.cuda(), y.cuda())
        for step in range(500):
            accelerator.train_on(batch, lambda part: LOSS(model(part[0]), part[1]))
            if step == 0:
                for parameter, other in zip(model.parameters(), expected, strict=True):
                    gap = (parameter.grad.cpu() - other).norm() / other.norm()
                    assert gap < 1e-3, float(gap)
            accelerator.step(optimizer)
        assert accelerator.parts > 1
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_4_five_times_the_processor():
    """Property 4, on a model that is not tiny: the same steps through the same library on both."""
    speeds = {}
    for name, config in (("cpu", {"use_gpu": False}), ("cuda", {"device_id": 0})):
        model = wide(2048, 4)
        accelerator = TrainingAccelerator(config)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-4))
        x, y = torch.randn(256, 2048).to(accelerator.device), torch.randint(0, 10, (256,)).to(accelerator.device)
        for number in range(8):
            if number == 3:
                torch.cuda.synchronize()
                began = time.perf_counter()
            accelerator.train_on((x, y), lambda part: LOSS(model(part[0]), part[1]))  # noqa: B023
            accelerator.step(optimizer)
        torch.cuda.synchronize()
        speeds[name] = 5 / (time.perf_counter() - began)
    assert speeds["cuda"] > 5 * speeds["cpu"], speeds


def test_precision_is_decided_by_the_own_steps():
    accelerator = TrainingAccelerator({"device_id": 0, "precision": "auto"})
    model = wide(2048, 4)
    data = TensorDataset(torch.randn(6400, 2048), torch.randint(0, 10, (6400,)))
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=1e-4), DataLoader(data, batch_size=64)
    )
    for x, y in loader:
        with accelerator.autocast():
            loss = LOSS(model(x), y)
        accelerator.backward(loss)
        accelerator.step(optimizer)
    assert accelerator._trial is None
    assert any("own steps" in note for note in accelerator.notes)


def test_batches_ahead_are_whole_and_in_order():
    data = TensorDataset(torch.arange(64_000.0).reshape(64, 1000).repeat(1, 200))
    accelerator = TrainingAccelerator({"device_id": 0, "num_workers": 2})
    loader = accelerator.optimize_data_loading(DataLoader(data, batch_size=4))
    sums = []
    for (x,) in loader:
        assert x.is_cuda
        for _ in range(20):  # the training's stream is busy while the next batch is copied
            y = x @ x.T
        sums.append(x[:, 0].clone())
    assert y is not None
    assert torch.equal(torch.cat(sums).cpu(), data.tensors[0][:, 0])


@pytest.mark.parametrize(
    ("optimizer", "more"),
    [(torch.optim.SGD, {}), (torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adam, {}), (torch.optim.AdamW, {})],
)
def test_a_step_that_is_no_number_is_left_out_and_nobody_waits(optimizer, more):
    accelerator = TrainingAccelerator({"device_id": 0, "precision": "bf16"})
    model = wide(64, 2)
    model, steps = accelerator.prepare(model, optimizer(model.parameters(), lr=1e-3, fused=True, **more))
    x, y = torch.randn(32, 64, device="cuda"), torch.randint(0, 10, (32,), device="cuda")

    def step(factor):
        with accelerator.autocast():
            loss = LOSS(model(x), y)
        accelerator.backward(loss * factor)
        accelerator.step(steps)

    step(1.0)  # the first may wait
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for number in range(10):
            step(float("nan") if number == 4 else 1.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert accelerator.skipped_steps == 1
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def test_a_device_that_is_not_there():
    with pytest.raises(ConfigurationError, match="there is no device 99"):
        TrainingAccelerator({"device_id": 99})
