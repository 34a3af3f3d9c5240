"""The eight properties of the design document, as far as the library's loop is concerned.

| property | here, and where else |
|---|---|
| 1 discrete card first | tests/machine/test_choose.py, tests/api/test_optimizer.py |
| 2 one device, 3 its own memory | below with any nesting; `contract.py` on the processor and, marked, on the GPU |
| 4 five times the processor | tests/gpu/test_library_gpu.py |
| 5 stable mixed precision | below over widths, rates and seeds; `contract.py` |
| 6 true monitoring | below what the loop counts; tests/api/test_monitor.py what the driver says |
| 7 fits the memory | below any batch in any memory; tests/api/test_optimizer.py, test_batch_size.py estimate and search |
| 8 a cause and a fix for every fault | tests/doctor/test_properties.py |
"""

import torch
from examples import given, settings, st
from test_library_split import begun, close, gradients, mean_loss, whole_gradients
from torch import nn
from torch.utils.data import DataLoader
from trainings import LOSS, Rows, loop, seed

from flatout import TrainingAccelerator
from flatout.api import placement

CPU = torch.device("cpu")
FEW = settings(max_examples=12, deadline=None)

places = st.sampled_from(["cpu", "meta"])  # meta stands for the other device
tensors = places.map(lambda place: torch.zeros(2, device=place))
batches = st.recursive(
    tensors,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


def count(thing):
    if isinstance(thing, torch.Tensor):
        return int(thing.device.type == "meta")
    return sum(map(count, thing.values() if isinstance(thing, dict) else thing))


@given(batches, st.lists(places, min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_2_and_3_whatever_is_elsewhere_is_named(batch, layers):
    model = nn.Sequential(*(nn.Linear(2, 2, device=place) for place in layers))
    found = placement.misplaced(model, CPU, batch)
    assert len(found) == 2 * layers.count("meta") + count(batch)
    assert all("meta" in name for name in found)
    assert all(name.startswith("batch") or name[0].isdigit() for name in found)


@given(st.integers(2, 24), st.sampled_from([0.001, 0.01, 0.05]), st.integers(0, 99), st.sampled_from(["bf16", "fp16"]))
@FEW
def test_5_mixed_precision_does_not_disturb_a_training(width, lr, number, precision):
    ends = {}
    for name in ("no", precision):
        seed(number)
        model = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        accelerator = TrainingAccelerator({"use_gpu": False, "precision": name})
        model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Rows(32), batch_size=8))
        loop(accelerator, model, optimizer, loader, epochs=5)
        assert accelerator.precision == name
        assert accelerator.skipped_steps <= 2  # the scaler's first scale may be too large
        with accelerator.evaluate(model):
            ends[name] = float(LOSS(model(loader.dataset.x).float(), loader.dataset.y))
    assert abs(ends[precision] - ends["no"]) < 0.02 + 0.02 * ends["no"]


@given(st.integers(1, 20), st.integers(1, 8), st.integers(1, 3))
@FEW
def test_6_the_monitor_counts_every_sample_once(size, batch, accumulation):
    accelerator = TrainingAccelerator({"use_gpu": False, "gradient_accumulation_steps": accumulation})
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    whole = size - size % (batch * accumulation) or batch * accumulation
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Rows(whole), batch_size=batch))
    monitor = accelerator.enable_performance_monitoring()
    loop(accelerator, model, optimizer, loader)
    report = monitor.stop()
    assert report.samples == whole
    assert report.steps == accelerator.steps == whole // (batch * accumulation)


@given(st.integers(1, 40), st.integers(1, 40), st.booleans())
@settings(max_examples=25, deadline=None)
def test_7_any_batch_trains_in_any_memory_that_holds_one_sample(samples, room, fails_in_backward):
    accelerator, model, _ = begun(room, fails_in_backward)
    data = (torch.randn(samples, 6), torch.randint(0, 3, (samples,)))
    expected = whole_gradients(model, data)
    accelerator.train_on(data, mean_loss(model))
    assert -(-samples // accelerator.parts) <= room
    close(gradients(model), expected)
