"""fp8: which layers, how near to float64, no trace on the model, and the sentences where it cannot be had.

torch's own product of float8 matrices runs on the processor too in newer versions; for older ones it is computed from the same
float8 values in float32. On a card: tests/gpu/test_library_fp8_gpu.py.
"""

import copy
import io
import pickle

import pytest
import torch
from examples import given, settings, st
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader
from trainings import LOSS, Rows, loop, seed

from flatout import BatchSizeOptimizer, TrainingAccelerator
from flatout.api import float8, resolving
from flatout.api.errors import ConfigurationError, ModelError
from flatout.api.float8 import Float8


def emulated(one, other, dtype, bias=None, is_fast=False):
    found = (one[0].float() @ other[0].float().t()) * one[1] * other[1]
    return (found if bias is None else found + bias.float()).to(dtype)


def has_product():
    try:
        rows = torch.zeros(16, 16).to(torch.float8_e4m3fn), torch.ones(())
        float8.product(rows, rows, torch.bfloat16)
    except (RuntimeError, NotImplementedError):
        return False
    return True


@pytest.fixture(autouse=True)
def product(monkeypatch):
    if not has_product():
        monkeypatch.setattr(float8, "product", emulated)


@pytest.fixture
def allowed(monkeypatch):
    """As if the processor were a card with units for it: what is computed is computed by torch all the same."""
    monkeypatch.setattr(float8, "obstacle", lambda device: None)


def inside():
    return torch.autocast("cpu", torch.bfloat16)


def put_on(model):
    taken = Float8()
    taken.is_on = True
    return taken, taken.take(model)


def gap(found, wanted):
    return float((found.detach().double() - wanted.detach()).norm() / wanted.detach().norm())


class Own(nn.Linear):
    pass


def replaced():
    layer = nn.Linear(32, 32)
    layer.forward = lambda x: x
    return layer


@pytest.mark.parametrize(
    ("layer", "is_one"),
    [
        (nn.Linear(32, 48), True),
        (nn.Linear(32, 48, bias=False), True),
        (nn.Linear(32, 48, dtype=torch.bfloat16), True),
        (nn.Linear(30, 48), False),
        (nn.Linear(32, 10), False),
        (nn.Linear(32, 48, dtype=torch.float64), False),
        (Own(32, 48), False),
        (replaced(), False),
        (nn.Bilinear(32, 32, 32), False),
        (nn.Conv2d(32, 32, 1), False),
    ],
)
def test_which_layers_qualify(layer, is_one):
    assert float8.qualifies(layer) == is_one
    taken, count = put_on(nn.Sequential(layer))
    assert count == len(taken.layers) == int(is_one)
    assert (type(layer).__name__ == "Float8Linear") == is_one


@given(
    rows=st.sampled_from([(16,), (2, 16), (4, 5, 4)]),
    sides=st.tuples(st.sampled_from([16, 48, 128]), st.sampled_from([16, 32, 64])),
    kinds=st.tuples(st.sampled_from([torch.float32, torch.bfloat16]), st.booleans()),
    size=st.sampled_from([1e-5, 1.0, 1e4]),
    number=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_outputs_and_gradients_are_near_those_of_float64(rows, sides, kinds, size, number):
    """In the norm: outputs to 5 % (two factors with 3 binary digits), gradients to 8 % (one of them with 2)."""
    torch.manual_seed(number)
    layer = nn.Linear(*sides, bias=kinds[1])
    exact = copy.deepcopy(layer).double()
    put_on(nn.Sequential(layer))
    x = (size * torch.randn(*rows, sides[0])).to(kinds[0]).requires_grad_()
    twin = x.detach().double().requires_grad_()
    with inside():
        found = layer(x)
    assert found.dtype is torch.bfloat16
    wanted = exact(twin)
    slope = torch.randn_like(found)
    found.backward(slope)
    wanted.backward(slope.double())
    assert gap(found, wanted) < 0.05
    assert x.grad.dtype is kinds[0]
    assert layer.weight.grad.dtype is torch.float32
    assert gap(x.grad, twin.grad) < 0.08
    assert gap(layer.weight.grad, exact.weight.grad) < 0.08
    if kinds[1]:
        assert gap(layer.bias.grad, exact.bias.grad) < 0.01


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_zeros_stay_zeros_and_what_is_no_number_stays_none(value):
    layer = nn.Linear(32, 32, bias=False)
    put_on(nn.Sequential(layer))
    with inside():
        found = layer(torch.full((16, 32), value))
    assert bool((found == 0).all() if value == 0 else (~torch.isfinite(found)).any())


def test_a_product_whose_rows_are_no_multiple_runs_in_bf16():
    layer = nn.Linear(32, 32)
    x = torch.randn(10, 32)
    with inside():
        plain = layer(x)
    taken, _ = put_on(nn.Sequential(layer))
    with inside():
        assert torch.equal(layer(x), plain)
    assert (taken.has_run, taken.odd_rows) == (False, 10)
    with inside():
        layer(torch.randn(16, 32))
    assert taken.has_run


def test_outside_autocast_and_when_off_nothing_is_changed():
    layer = nn.Linear(32, 32)
    x = torch.randn(16, 32)
    plain = layer(x)
    taken, _ = put_on(nn.Sequential(layer))
    assert torch.equal(layer(x), plain)
    taken.is_on = False
    with inside():
        low = layer(x)
    taken.take_off()
    assert type(layer) is nn.Linear
    with inside():
        assert torch.equal(layer(x), low)


@pytest.mark.filterwarnings("ignore:.*autocast.*:FutureWarning")  # torch 2.4 about itself
def test_recomputing_under_checkpointing_is_the_same_computation():
    layer = nn.Linear(32, 32)
    put_on(nn.Sequential(layer))
    x = torch.randn(16, 32)
    slopes = []
    for recomputed in (False, True):
        layer.zero_grad()
        with inside():
            found = checkpoint(layer, x, use_reentrant=False) if recomputed else layer(x)
        found.float().pow(2).sum().backward()  # outside: recomputing must find its way back in
        slopes.append(layer.weight.grad.clone())
    assert torch.equal(*slopes)


def test_copies_and_pickles_bear_no_trace():
    seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    plain = len(pickle.dumps(copy.deepcopy(model)))
    before, names = list(model.parameters()), list(model.state_dict())
    put_on(model)
    assert list(model.state_dict()) == names
    assert all(one is other for one, other in zip(before, model.parameters(), strict=True))
    assert type(copy.deepcopy(model)[0]) is nn.Linear
    dumped = pickle.dumps(model)
    assert b"flatout" not in dumped
    assert b"float8" not in dumped
    assert type(pickle.loads(dumped)[0]) is nn.Linear
    assert len(pickle.dumps(pickle.loads(dumped))) == plain
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert type(torch.load(file, weights_only=False)[0]) is nn.Linear


# -- through the accelerator --------------------------------------------------------------------------------------------------


def training(width=32):
    seed(3)
    model = nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 3))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01), DataLoader(Rows(64, width=16), batch_size=16, shuffle=True)


def begun(**config):
    accelerator = TrainingAccelerator({"use_gpu": False, **config})
    return accelerator, *accelerator.prepare(*training())


def test_it_learns_as_in_bf16(allowed):
    """After each epoch within 0.05 and 5 % of bf16's loss."""
    courses = {}
    for name in ("bf16", "fp8"):
        accelerator, model, optimizer, loader = begun(precision=name)
        courses[name] = []
        for epoch in range(1, 9):
            loop(accelerator, model, optimizer, loader, epochs=epoch)
            with accelerator.evaluate(model):
                courses[name].append(float(LOSS(model(loader.dataset.x).float(), loader.dataset.y)))
        assert accelerator.precision == name
    assert accelerator._regime.float8.has_run
    assert courses["fp8"][-1] < 0.6 * courses["fp8"][0]
    for bf16, fp8 in zip(*courses.values(), strict=True):
        assert abs(fp8 - bf16) < 0.05 + 0.05 * bf16


def test_checkpoints_and_what_is_unwrapped_are_plain(allowed, tmp_path):
    accelerator, model, optimizer, loader = begun(precision="fp8")
    loop(accelerator, model, optimizer, loader)
    accelerator.save(tmp_path / "fp8.pt")
    other, *_ = begun(precision="bf16")
    other.load(tmp_path / "fp8.pt")  # the same names and shapes: a plain training goes on from it
    assert other.precision == "bf16"
    saved = [torch.load(path, weights_only=True)["models"] for path in [tmp_path / "fp8.pt"]]
    assert list(saved[0]["model-1"]) == list(training()[0].state_dict())
    assert {type(module) for module in accelerator.unwrap(model)} == {nn.Linear, nn.GELU}
    loop(accelerator, model, optimizer, loader, epochs=2)  # and the training goes on in fp8
    assert [type(model[place]).__name__ for place in (0, 2, 4)] == ["Float8Linear", "Float8Linear", "Linear"]


def test_a_resumed_training_has_the_same_bits(allowed, tmp_path):
    accelerator, model, optimizer, loader = begun(precision="fp8")
    loop(accelerator, model, optimizer, loader)
    accelerator.save(tmp_path / "last.pt")
    loop(accelerator, model, optimizer, loader, epochs=2)
    other, twin, steps, batches = begun(precision="fp8")
    other.load(tmp_path / "last.pt")
    loop(other, twin, steps, batches, epochs=2)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), twin.parameters(), strict=True))


def test_rows_that_do_not_fit_are_said_once(allowed):
    accelerator, model, optimizer, _ = begun(precision="fp8")
    for _ in range(40):
        with accelerator.autocast():
            loss = LOSS(model(torch.randn(10, 16)), torch.zeros(10, dtype=torch.long))
        accelerator.backward(loss)
        accelerator.step(optimizer)
    (said,) = [note for note in accelerator.notes if "multiple of 16" in note]
    assert "10 rows" in said


@pytest.mark.parametrize(("bf16", "fp8", "wins"), [(0.5, 0.3, "fp8"), (0.5, 0.5, "bf16"), (0.5, 0.8, "bf16"), (1.2, 0.3, "no")])
def test_auto_takes_it_only_if_it_beats_bf16(allowed, monkeypatch, bf16, fp8, wins):
    """Steps of so many seconds by a clock of the test's own; float32's take one."""
    now, seconds = [0.0], {"no": 1.0, "bf16": bf16, "fp8": fp8}
    monkeypatch.setattr(resolving, "best_precision", lambda torch, device: "bf16")
    monkeypatch.setattr("flatout.api.precision_trial.time.perf_counter", lambda: now[0])
    accelerator, model, optimizer, loader = begun(precision="auto")
    seen = []

    def each():
        seen.append(accelerator.precision)
        now[0] += seconds[accelerator.precision] * (1 + 0.01 * (len(seen) % 3))

    for _ in range(40):
        for x, y in loader:
            each()
            with accelerator.autocast():
                loss = LOSS(model(x), y)
            accelerator.backward(loss)
            accelerator.step(optimizer)
        if accelerator._trial is None:
            break
    assert accelerator._trial is None
    assert accelerator.precision == wins
    assert ("fp8" in seen) == (wins != "no")
    said = [note for note in accelerator.notes if "own steps" in note]
    assert len(said) == (1 if wins == "no" else 2)
    assert "then fp8" in accelerator.config.reasons["precision"]


# -- where it cannot be had ---------------------------------------------------------------------------------------------------


def test_refused_on_the_processor():
    with pytest.raises(ConfigurationError, match=r"precision: fp8 needs .*8\.9.*cpu"):
        TrainingAccelerator({"precision": "fp8", "use_gpu": False})


def test_refused_on_an_older_card_and_torch(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA GeForce RTX 3060")
    key, figures = float8.obstacle(torch.device("cuda", 0))
    assert (key, figures) == ("library.fp8-device", {"device": "NVIDIA GeForce RTX 3060", "found": "8.6"})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    assert float8.obstacle(torch.device("cuda", 0)) is None
    monkeypatch.setattr(torch.version, "cuda", None)  # ROCm counts its capabilities otherwise
    assert float8.obstacle(torch.device("cuda", 0))[0] == "library.fp8-device"
    monkeypatch.delattr(torch, "_scaled_mm")
    assert float8.obstacle(torch.device("cuda", 0))[0] == "library.fp8-torch"


def test_refused_for_a_model_without_such_layers(allowed):
    accelerator = TrainingAccelerator({"use_gpu": False, "precision": "fp8"})
    model = nn.Sequential(nn.Linear(6, 3))
    with pytest.raises(ModelError, match="multiples of 16, and model Sequential has none"):
        accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_refused_with_fsdp(allowed, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigurationError, match="fp8 with fsdp"):
        TrainingAccelerator({"use_gpu": False, "precision": "fp8", "distributed": "fsdp"})


def test_the_batch_size_is_searched_in_bf16():
    assert BatchSizeOptimizer(nn.Linear(16, 16), {"precision": "fp8"})._precision() == "bf16"
