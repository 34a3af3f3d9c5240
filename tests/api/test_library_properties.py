"""The eight properties of the design document, as far as the library's loop is concerned.

| property | here, and where else |
|---|---|
| 1 discrete card first | tests/machine/test_choose.py, tests/api/test_optimizer.py |
| 2 one device | below: every operation of any training, as torch's dispatcher saw it; what is elsewhere is named |
| 3 its own memory | below: nothing of model, data and state is left in the host's memory |
| 4 five times the processor | below what is claimed where there is no GPU; measured in tests/gpu/test_properties_gpu.py |
| 5 stable mixed precision | below over models, optimizers, rates and seeds; kept only if faster |
| 6 true monitoring | below what the loop counts; tests/api/test_monitor.py what the driver says |
| 7 fits the memory | below any batch in any memory; tests/api/test_optimizer.py, test_batch_size.py estimate and search |
| 8 a cause and a fix for every fault | tests/doctor/test_properties.py |

A GPU is not needed to see where things go: torch's device `meta` is a device that is not the host's memory, and a training runs
on it through the same code. tests/gpu/test_properties_gpu.py has the same properties on a real card.
"""

import pytest
import torch
from device_seen import DevicesSeen, tensors
from drawn import KINDS, Batches, as_it_is, assert_beside, layers, nests, sums
from examples import given, settings, st
from test_library_split import begun, close, gradients, mean_loss, whole_gradients
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.data import DataLoader
from trainings import LOSS, Rows, loop, seed

from flatout import GPUPerformanceAnalyzer, TrainingAccelerator, TrainingConfig
from flatout.api import placement
from flatout.api.errors import ModelError
from flatout.api.precision_trial import PrecisionTrial

META = torch.device("meta")
FEW = settings(max_examples=12, deadline=None)
SOME = settings(max_examples=25, deadline=None)

optimizers = st.sampled_from([torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])


@pytest.fixture(autouse=True)
def parameters_keep_their_identity():
    """Between the host and a card they do by themselves, between the host and `meta` only so."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(before)


def far_away(**config):
    """A training on a device that is not the host's memory."""
    wanted = TrainingConfig(**config)
    wanted.device_id = "meta"
    accelerator = TrainingAccelerator(wanted)
    assert accelerator.device == META
    return accelerator


@given(data=st.data(), extra=nests, optimizer=optimizers, accumulation=st.integers(1, 2), clip=st.sampled_from([None, 1.0]))
@SOME
def test_2_every_operation_of_a_training_runs_on_its_device(data, extra, optimizer, accumulation, clip):
    accelerator = far_away(gradient_accumulation_steps=accumulation, grad_clip=clip)
    model = layers(data.draw)
    loader = DataLoader(Batches(extra), collate_fn=as_it_is, batch_size=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer(model.parameters(), lr=0.1), loader)
    for batch in loader:
        with DevicesSeen() as seen:
            loss = LOSS(model(batch["x"]), batch["y"]) + sums(batch["extra"])
            accelerator.backward(loss)
            accelerator.step(optimizer)
        assert len(seen.operations) > 10
        assert any("backward" in name for name, _ in seen.operations)
        assert seen.elsewhere(META) == []


@given(data=st.data(), extra=nests, where=st.sampled_from(["parameter", "buffer", "attribute", "batch"]))
@SOME
def test_2_whatever_is_elsewhere_is_named(data, extra, where):
    """Planted: one tensor stays behind. The training stops, and the sentence has its name and its device."""
    accelerator = far_away()
    model = layers(data.draw)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    module, batch = model[-1], {"x": torch.randn(4, 6).to(META), "extra": extra}
    here = torch.randn(3)
    if where == "parameter":
        module.bias = nn.Parameter(here)
    elif where == "buffer":
        module.register_buffer("shift", here)
    elif where == "attribute":
        module.shift = here
    moved = torch.utils._pytree.tree_map(lambda part: part.to(META), extra) if where != "batch" else [torch.zeros(4, 6)]
    batch["extra"] = moved
    shift = getattr(module, "shift", 0)

    def compute(part):
        x = part["x"] + part["extra"][0] if where == "batch" else part["x"]
        return (model(x) + shift).sum()

    with pytest.raises(ModelError) as caught:
        accelerator.train_on(batch, compute)
    name = {"parameter": f"{len(model) - 1}.bias", "batch": "batch['extra'][0]"}.get(where, f"{len(model) - 1}.shift")
    assert f"1 tensors are not on meta: {name} (cpu)" in str(caught.value)
    assert optimizer is not None


@given(nests, st.lists(st.sampled_from(["cpu", "meta"]), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_2_and_3_the_list_is_whole(batch, places):
    model = nn.Sequential(*(nn.Linear(2, 2, device=place) for place in places))
    assert len(placement.misplaced(model, META, batch)) == 2 * places.count("cpu") + len(tensors(batch))
    assert len(placement.misplaced(model, torch.device("cpu"), batch)) == 2 * places.count("meta")


@given(data=st.data(), extra=nests, optimizer=optimizers)
@SOME
def test_3_nothing_of_a_training_is_left_in_the_hosts_memory(data, extra, optimizer):
    accelerator = far_away()
    model = layers(data.draw)
    parameters, shapes = list(model.parameters()), {name: part.shape for name, part in model.state_dict().items()}
    behind = [StorageWeakRef(part.untyped_storage()) for part in model.state_dict().values()]
    made = DataLoader(Batches(extra), collate_fn=as_it_is, batch_size=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer(parameters, lr=0.1), made)
    assert all(storage.expired() for storage in behind)  # no copy of a weight stays with the host
    assert {name: part.shape for name, part in model.state_dict().items()} == shapes
    assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))
    for batch in loader:
        assert len(tensors(batch)) == 2 + len(tensors(extra))
        accelerator.backward(LOSS(model(batch["x"]), batch["y"]))
        held = [batch, [parameter.grad for parameter in parameters], list(model.state_dict().values())]
        accelerator.step(optimizer)
        state = [part for part in tensors(list(optimizer.state.values())) if part.dim()]  # a count of steps is a number
        assert {part.device for part in tensors([held, state])} == {META}


@given(width=st.integers(2, 32), rows=st.integers(2, 16))
@settings(max_examples=4, deadline=None)
def test_4_without_a_gpu_no_speed_up_is_claimed(width, rows):
    if torch.cuda.is_available():
        pytest.skip("tests/gpu/test_properties_gpu.py measures it here")
    analyzer = GPUPerformanceAnalyzer(nn.Linear(width, 3), torch.randn(rows, width), loss=lambda output, batch: output.sum())
    result = analyzer.compare_cpu_vs_gpu_performance(seconds=0.02)
    assert result.cpu_samples_per_s > 0
    assert result.speedup is result.meets_target is result.gpu_samples_per_s is None
    assert result.missing["speedup"].reason == "no-device"
    assert result.reason


@given(
    kind=st.sampled_from(sorted(KINDS)),
    width=st.integers(2, 24),
    optimizer=st.sampled_from([torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW]),
    lr=st.sampled_from([0.001, 0.01]),
    number=st.integers(0, 99),
    precision=st.sampled_from(["bf16", "fp16"]),
)
@FEW
def test_5_mixed_precision_does_not_disturb_a_training(kind, width, optimizer, lr, number, precision):
    """The course of the loss, not its end alone: within 0.03 and 3 % of float32's after each epoch, nothing given up."""
    courses = {}
    for name in ("no", precision):
        seed(number)
        model = KINDS[kind](width)
        accelerator = TrainingAccelerator({"use_gpu": False, "precision": name})
        data = DataLoader(Rows(32), batch_size=8)
        model, steps, loader = accelerator.prepare(model, optimizer(model.parameters(), lr=lr), data)
        courses[name] = []
        for epoch in range(6):
            loop(accelerator, model, steps, loader, epochs=epoch)
            with accelerator.evaluate(model):
                courses[name].append(float(LOSS(model(loader.dataset.x).float(), loader.dataset.y)))
        assert accelerator.precision == name
        assert not any("turned off" in note for note in accelerator.notes)
        assert accelerator.skipped_steps <= 4  # the scaler halves its first scale until it fits; an epoch has four steps
        for part in tensors([model.state_dict(), list(steps.state.values())]):
            assert part.dtype in (torch.float32, torch.int64)
            assert bool(torch.isfinite(part.float()).all())
    assert_beside(courses["no"], courses[precision], skipped=accelerator.skipped_steps)


class Clock:
    now = 0.0

    def perf_counter(self):
        return self.now


@given(ratio=st.floats(0.3, 3.0), noise=st.lists(st.floats(0.97, 1.03), min_size=60, max_size=60))
@settings(max_examples=60, deadline=None)
def test_5_low_precision_stays_only_where_it_is_faster(ratio, noise):
    """Under noise of 3 %: what is slower than float32 is never kept, what is faster by a quarter always is."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flatout.api.precision_trial.time", clock)
        trial = PrecisionTrial(torch.device("cpu"))
        low, number = trial.begin(), 0
        while trial.result is None:
            clock.now += (1.0 if low else ratio) * noise[number % len(noise)]
            low, number = trial.stepped(), number + 1
    if ratio <= 0.94:
        assert not trial.is_faster
    if ratio >= 1.25:
        assert trial.is_faster


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
