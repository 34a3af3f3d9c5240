"""A loss or gradient that is no number in mixed precision: the step is left out, or the weights go back, or it is said."""

import math

import pytest
import torch
from examples import given, settings, st
from torch import nn
from torch.utils.data import DataLoader
from trainings import LOSS, Rows, same, seed, weights

from flatout import TrainingAccelerator
from flatout.api.loss_watch import EVERY
from flatout.api.non_finite_gradients import leaves_steps_out, step_if_finite
from flatout.api.refusals import LossNotFiniteError

FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
STEPS = 6 * EVERY


class Poison(torch.autograd.Function):
    """A gradient that is no number behind a loss that is one, as of a square root at zero."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        return slope * math.nan


def begun(precision="bf16", fused=True, optimizer=torch.optim.Adam, number=0, **config):
    seed(number)
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
    accelerator = TrainingAccelerator({"use_gpu": False, "precision": precision, **config})
    more = {"momentum": 0.9} if optimizer is torch.optim.SGD else {}
    prepared = accelerator.prepare(model, optimizer(model.parameters(), lr=0.01, fused=fused or None, **more))
    return accelerator, *prepared


def trained(accelerator, model, optimizer, planted=(), where="loss", steps=STEPS, each=None):
    data = Rows(32)
    for step in range(steps):
        with accelerator.autocast():
            output = model(data.x)
            if step in planted and where == "gradient":
                output = Poison.apply(output)
            loss = LOSS(output, data.y)
            if step in planted and where == "loss":
                loss = loss * math.nan
        accelerator.backward(loss)
        accelerator.step(optimizer)
        if each is not None:
            each(step)
    with accelerator.evaluate(model):
        return float(LOSS(model(data.x).float(), data.y))


def without_momentum(parameters, **options):
    return torch.optim.SGD(parameters, **options)


@pytest.mark.parametrize("optimizer", [*FUSED, without_momentum])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_fused_optimizer_leaves_the_step_out(optimizer, where):
    """To the bit as if that batch had never been: nothing of the optimizer's state has moved either."""
    accelerator, model, steps = begun(optimizer=optimizer)
    trained(accelerator, model, steps, planted=(0, 3, 4), where=where, steps=10)
    assert accelerator.skipped_steps == 3
    assert accelerator.steps == 10
    other, twin, others = begun(optimizer=optimizer)
    trained(other, twin, others, steps=7)
    assert same(weights(model), weights(twin))
    assert not hasattr(steps, "found_inf")


@given(
    planted=st.sets(st.integers(0, STEPS - 1), max_size=5),
    where=st.sampled_from(["loss", "gradient"]),
    optimizer=st.sampled_from(FUSED),
    number=st.integers(0, 99),
)
@settings(max_examples=12, deadline=None)
def test_5_whatever_steps_are_no_numbers_the_training_goes_on(planted, where, optimizer, number):
    """Property 5: it ends near the training in float32 without them, in the same precision or, told, in float32."""
    plain = trained(*begun("no", optimizer=optimizer, number=number))
    accelerator, model, steps = begun(optimizer=optimizer, number=number)
    found = trained(accelerator, model, steps, planted, where)
    assert abs(found - plain) < 0.08 + 0.08 * plain
    assert all(bool(torch.isfinite(part).all()) for part in model.parameters())
    assert (accelerator.precision == "bf16") or any("turned off" in note for note in accelerator.notes)


@pytest.mark.parametrize("optimizer", FUSED)
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_what_comes_after_a_precision_was_given_up_is_left_out_as_before(where, optimizer):
    """Two looks in a row that are no numbers give it up; the very next step is none either."""
    planted = {2 * EVERY - 1, 3 * EVERY - 1, 3 * EVERY}
    plain = trained(*begun("no", optimizer=optimizer))
    accelerator, model, steps = begun(optimizer=optimizer)
    found = trained(accelerator, model, steps, planted, where)
    assert accelerator.precision == ("no" if where == "loss" else "bf16")
    assert abs(found - plain) < 0.08 + 0.08 * plain


def test_in_float32_a_step_is_the_users_own():
    accelerator, model, optimizer = begun("no")
    assert accelerator._is_plain
    trained(accelerator, model, optimizer, planted=(0,), steps=1)
    assert accelerator.skipped_steps == 0
    assert not bool(torch.isfinite(next(model.parameters())).all())


def test_the_weights_go_back_to_the_last_checkpoint(tmp_path):
    accelerator, model, optimizer = begun(fused=False)
    assert not leaves_steps_out(optimizer)

    def each(step):
        if step == 10:
            accelerator.save(tmp_path / "good.pt")

    ended = trained(accelerator, model, optimizer, planted=(20,), each=each)
    (said,) = [note for note in accelerator.notes if "turned off" in note]
    assert "good.pt" in said
    assert "float32" in said
    assert accelerator.precision == "no"
    assert math.isfinite(ended)
    assert ended < trained(*begun("no"), steps=5)  # it has learned since
    with pytest.raises(LossNotFiniteError, match=r"good\.pt"):  # once
        trained(accelerator, model, optimizer, planted=(0,), steps=2 * EVERY)


def test_without_a_checkpoint_it_is_said():
    accelerator, model, optimizer = begun(fused=False)
    with pytest.raises(LossNotFiniteError, match=r"The weights are NaN or infinite too.*none was saved.*fused_optimizer"):
        trained(accelerator, model, optimizer, planted=(3,))


def test_a_good_checkpoint_is_not_written_over_with_what_is_no_number(tmp_path):
    accelerator, model, optimizer = begun(fused=False)
    trained(accelerator, model, optimizer, steps=2)
    accelerator.save(tmp_path / "last.pt")
    good = weights(model)
    trained(accelerator, model, optimizer, planted=(0,), steps=1)
    with pytest.raises(LossNotFiniteError, match=r"last\.pt has the last good ones"):
        accelerator.save(tmp_path / "last.pt")
    accelerator.save(tmp_path / "other.pt")  # asked for by another name
    accelerator.load(tmp_path / "last.pt")
    assert same(weights(model), good)


def test_a_precision_given_up_leaves_no_scaled_gradient_behind():
    """Of the batch at which fp16 is given up the gradients are 65536 times too large: they are not stepped on."""
    accelerator, model, optimizer = begun("fp16", fused=False, optimizer=torch.optim.SGD)
    before = None
    for look in range(40):
        for _ in range(EVERY):
            before = weights(model)
            value = (1 / (1 + look) if look < 28 else 5.0 + look) / 30
            total = next(model.parameters()).sum()
            accelerator.backward(value + total - total.detach())
            accelerator.step(optimizer)
            if accelerator.precision == "no":
                assert same(weights(model), before)
                return
    pytest.fail("it was never given up")


@pytest.mark.parametrize("fused", [True, False])
def test_fit_goes_on_and_keeps_only_what_is_finite(tmp_path, fused):
    accelerator, model, optimizer = begun(fused=fused)
    fresh = TrainingAccelerator({"use_gpu": False, "precision": "bf16"})
    planted = iter([False] * 9 + [True] + [False] * 100)  # in the third epoch of four batches each

    def loss(net, batch):
        found = LOSS(net(batch[0]), batch[1])
        return found * math.nan if torch.is_grad_enabled() and next(planted) else found

    loader = DataLoader(Rows(32), batch_size=8)
    result = fresh.fit(model, optimizer, loader, loss, epochs=6, checkpoint=tmp_path / "last.pt")
    assert all(math.isfinite(each) for each in result.losses)
    assert len(result.losses) == 6
    saved = torch.load(tmp_path / "last.pt", weights_only=True)["models"]["model-1"]
    assert all(bool(torch.isfinite(part).all()) for part in saved.values())
    assert (fresh.precision == "bf16") == fused
    assert fresh.skipped_steps == int(fused)
    assert accelerator is not fresh


def test_a_parameter_without_a_gradient_is_no_obstacle():
    used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([used, unused], lr=0.1, fused=True)
    used.grad = torch.ones(3)
    assert float(step_if_finite(optimizer, torch.ones(()))) == 0
    assert not torch.equal(used, unused)
