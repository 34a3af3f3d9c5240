"""The loop through the library: the same bits as by hand, accumulation, clipping, evaluation, and what it refuses."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from trainings import LOSS, by_hand, loop, network, same, seed, training, weights

from flatout import TrainingAccelerator, TrainingConfig, auto_optimize_config
from flatout.api.errors import LoaderError, LossError, ModelError, OrderError
from flatout.api.refusals import LossNotFiniteError, NoParametersError
from flatout.base.errors import FlatoutError


def test_bit_identical_to_the_loop_by_hand_after_200_steps():
    model, optimizer, loader = training(size=64)
    by_hand(model, optimizer, loader, epochs=25)
    other, other_optimizer, other_loader = training(size=64)
    accelerator = TrainingAccelerator()
    loop(accelerator, *accelerator.prepare(other, other_optimizer, other_loader), epochs=25)
    assert accelerator.steps == 200
    assert same(weights(model), weights(other))


def test_objects_stay_themselves_and_the_step_is_the_optimizers():
    model, optimizer, _ = training()
    accelerator = TrainingAccelerator()
    prepared = accelerator.prepare(model, optimizer)
    assert prepared == (model, optimizer)
    assert type(model) is nn.Sequential
    assert accelerator.unwrap(model) is model


def test_accumulation_is_the_larger_batch():
    """Four batches of 8 accumulated against one of 32; sums in another order, so to 1e-6."""
    model, optimizer, loader = training(noise=False, dropout=0.0, size=32, batch=8, optimizer=torch.optim.SGD)
    twin = copy.deepcopy(model)
    accelerator = TrainingAccelerator({"gradient_accumulation_steps": 4})
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    moved = []
    for x, y in loader:
        accelerator.backward(LOSS(model(x), y))
        moved.append(accelerator.step(optimizer))
    assert moved == [False, False, False, True]
    assert accelerator.steps == 1
    rows = loader.dataset
    whole = torch.optim.SGD(twin.parameters(), lr=0.01)
    LOSS(twin(rows.x), rows.y).backward()
    whole.step()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_an_accumulation_that_ends_early_is_the_mean_of_what_there_is():
    model, optimizer, _ = training(dropout=0.0, optimizer=torch.optim.SGD)
    twin = copy.deepcopy(model)
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    accelerator = TrainingAccelerator()
    accelerator.prepare(model, optimizer)
    with accelerator.accumulate(4):
        accelerator.backward(LOSS(model(x), y))
        assert not accelerator.step(optimizer)
        with pytest.raises(OrderError, match="save"):
            accelerator.save("never.pt")
        assert accelerator.flush(optimizer)
        assert not accelerator.flush(optimizer)
    other = torch.optim.SGD(twin.parameters(), lr=0.01)
    LOSS(twin(x), y).backward()
    other.step()
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_clipping_by_call_and_by_configuration():
    model, optimizer, _ = training(dropout=0.0, optimizer=torch.optim.SGD)
    twin = copy.deepcopy(model)
    x, y = 100 * torch.randn(8, 6), torch.randint(0, 3, (8,))
    accelerator = TrainingAccelerator(TrainingConfig(grad_clip=0.1))
    accelerator.prepare(model, optimizer)
    accelerator.backward(LOSS(model(x), y))
    accelerator.step(optimizer)
    LOSS(twin(x), y).backward()
    norm = nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
    assert norm > 0.1
    torch.optim.SGD(twin.parameters(), lr=0.01).step()
    assert same(weights(model), weights(twin))


def test_evaluation_leaves_everything_as_it_was():
    model, optimizer, _ = training()
    model[1].eval()  # a part that the user keeps frozen
    accelerator = TrainingAccelerator({"precision": "bf16", "use_gpu": False})
    accelerator.prepare(model, optimizer)
    with accelerator.evaluate(model):
        assert not model.training
        assert not model[2].training
        assert not torch.is_grad_enabled()
        assert model(torch.randn(2, 6)).dtype is torch.bfloat16  # the regime of the training
    assert model.training
    assert model[2].training
    assert not model[1].training


def test_fit_is_the_same_training_and_goes_on_from_its_checkpoint(tmp_path):
    accelerator = TrainingAccelerator()
    whole = accelerator.fit(*training(), LOSS, epochs=4)
    assert len(whole.losses) == 4
    assert whole.losses[-1] < whole.losses[0]
    path = tmp_path / "fit.pt"
    TrainingAccelerator().fit(*training(), LOSS, epochs=2, checkpoint=path)
    model, optimizer, loader = training(number=7)  # another beginning: the checkpoint decides
    rest = TrainingAccelerator().fit(model, optimizer, loader, LOSS, epochs=4, checkpoint=path)
    assert rest.losses == whole.losses
    assert same(weights(rest.model), weights(whole.model))


def test_fit_with_validation_scheduler_and_a_function():
    model, optimizer, loader = training()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    result = TrainingAccelerator().fit(
        model, optimizer, loader, lambda net, batch: LOSS(net(batch[0]), batch[1]), 2, validation=loader, scheduler=scheduler
    )
    assert len(result.validation_losses) == 2
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01 / 4)


def test_fit_ends_an_accumulation_with_the_epoch(tmp_path):
    model, optimizer, loader = training(size=40)  # five batches: one group of four, and one alone
    accelerator = TrainingAccelerator({"gradient_accumulation_steps": 4})
    result = accelerator.fit(model, optimizer, loader, LOSS, epochs=2, checkpoint=tmp_path / "last.pt")
    assert result.steps == 4
    assert not accelerator.is_accumulating
    assert (tmp_path / "last.pt").exists()


def test_a_fit_whose_loss_is_not_finite_keeps_the_good_checkpoint(tmp_path):
    path = tmp_path / "last.pt"
    TrainingAccelerator().fit(*training(), LOSS, epochs=1, checkpoint=path)
    good = path.read_bytes()
    with pytest.raises(LossNotFiniteError):
        TrainingAccelerator().fit(*training(), lambda net, b: LOSS(net(b[0]), b[1]) * math.nan, epochs=2, checkpoint=path)
    assert path.read_bytes() == good


def test_fit_keeps_the_best_over_an_interruption(tmp_path):
    planted = iter([0.5, 0.2, 0.4, 0.3, 0.1])

    def loss(model, batch):
        found = LOSS(model(batch[0]), batch[1])
        return found if torch.is_grad_enabled() else found * 0 + next(planted)

    def fitted(epochs):
        model, optimizer, loader = training()
        check = DataLoader(loader.dataset, batch_size=len(loader.dataset))
        paths = {"checkpoint": tmp_path / "last.pt", "best": tmp_path / "best.pt"}
        return TrainingAccelerator().fit(model, optimizer, loader, loss, epochs=epochs, validation=check, **paths)

    def kept():
        return len(torch.load(tmp_path / "best.pt", weights_only=True)["extra"]["losses"])

    assert (fitted(3).best_epoch, kept()) == (1, 2)
    assert (fitted(4).best_epoch, kept()) == (1, 2)  # 0.3 is better than the last, not than the best before it
    assert (fitted(5).best_epoch, kept()) == (4, 5)
    alone = TrainingAccelerator().fit(*training(), LOSS, epochs=2, best=tmp_path / "alone.pt")
    assert alone.best_epoch == alone.losses.index(min(alone.losses))
    assert (tmp_path / "alone.pt").exists()


def test_fit_goes_on_from_a_checkpoint_of_a_loop(tmp_path):
    accelerator = TrainingAccelerator()
    model, optimizer, loader = accelerator.prepare(*training())
    loop(accelerator, model, optimizer, loader)
    accelerator.save(tmp_path / "last.pt")
    rest = TrainingAccelerator().fit(*training(), LOSS, epochs=3, checkpoint=tmp_path / "last.pt")
    assert len(rest.losses) == 2


def test_an_accumulation_that_is_left_in_the_middle_steps_on_what_there_is(tmp_path):
    model, optimizer, loader = training(size=48)  # six batches: a group of four, and two
    accelerator = TrainingAccelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    with accelerator.accumulate(4):
        loop(accelerator, model, optimizer, loader)
        assert accelerator.is_accumulating
    assert accelerator.steps == 2
    assert not accelerator.is_accumulating
    accelerator.save(tmp_path / "last.pt")


def test_an_accumulation_that_fails_leaves_nothing_behind():
    accelerator = TrainingAccelerator()
    model, optimizer, loader = accelerator.prepare(*training())
    (x, y), batches = next(iter(loader)), accelerator.accumulate(4)

    def fails():
        with batches:
            accelerator.backward(LOSS(model(x), y))
            accelerator.step(optimizer)
            raise KeyError("of the script's own")

    with pytest.raises(KeyError):
        fails()
    assert not accelerator.is_accumulating
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_monitor_counts_every_sample_of_a_group():
    model, optimizer, loader = training(size=26)  # 8, 8, 8 and 2
    accelerator = TrainingAccelerator({"gradient_accumulation_steps": 3})
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    monitor = accelerator.enable_performance_monitoring()
    loop(accelerator, model, optimizer, loader, epochs=3)
    accelerator.flush(optimizer)
    assert monitor.stop().samples == 3 * 26


def test_learning_rate_helpers():
    model, optimizer, _ = training()
    accelerator = TrainingAccelerator()
    accelerator.prepare(model, optimizer)
    accelerator.scale_learning_rate(optimizer, 64, 256, rule="sqrt")
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.02)
    scheduler = accelerator.warm_up(optimizer, 10)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0002)
    for _ in range(10):
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.02)


def test_the_monitor_is_fed_by_the_loop():
    accelerator = TrainingAccelerator()
    model, optimizer, loader = accelerator.prepare(*training())
    monitor = accelerator.enable_performance_monitoring()
    loop(accelerator, model, optimizer, loader, epochs=2)
    report = monitor.stop()
    assert (report.steps, report.samples) == (12, 96)
    assert all(math.isfinite(value) for _, value in report.losses)


@pytest.mark.parametrize(
    ("loss", "says"),
    [(lambda: 1.5, "float"), (lambda: torch.ones(3, requires_grad=True) * 2, "shape"), (lambda: torch.ones(()), "graph")],
)
def test_a_loss_that_cannot_be_meant(loss, says):
    accelerator = TrainingAccelerator()
    accelerator.prepare(*training()[:2])
    with pytest.raises(LossError, match=f"loss .*{says}"):
        accelerator.backward(loss())


def test_a_loss_that_is_not_finite_ends_the_training():
    model, optimizer, _ = training()
    accelerator = TrainingAccelerator()
    accelerator.prepare(model, optimizer)
    bad = torch.tensor(float("nan"), requires_grad=True)

    def train():
        for _ in range(200):
            accelerator.backward(bad * 1.0)

    with pytest.raises(LossNotFiniteError, match="loss became NaN or infinite"):
        train()


def test_a_loss_of_shape_one_is_one_number():
    accelerator = TrainingAccelerator()
    accelerator.prepare(*training()[:2])
    for _ in range(40):
        accelerator.backward(torch.ones(1, requires_grad=True) * 2)


def test_models_and_optimizers_that_cannot_be_meant():
    model, optimizer, _ = training()
    accelerator = TrainingAccelerator()
    with pytest.raises(NoParametersError, match="no parameters"):
        accelerator.prepare(nn.ReLU(), optimizer)
    with pytest.raises(ModelError, match="model must be a"):
        accelerator.prepare("model", optimizer)
    with pytest.raises(ModelError, match="optimizer has 4 parameters"):
        accelerator.prepare(network(), optimizer)
    with pytest.raises(LoaderError, match=r"loader must be .* but it is a range"):
        accelerator.prepare(model, optimizer, range(3))
    assert accelerator._training.models == {}  # nothing was half prepared
    assert accelerator.prepare(model, optimizer)[0] is model


def test_calls_out_of_order_are_named():
    accelerator = TrainingAccelerator()
    with pytest.raises(OrderError, match="prepare"):
        accelerator.backward(torch.ones((), requires_grad=True))
    with pytest.raises(OrderError, match="prepare"):
        accelerator.autocast()
    with pytest.raises(OrderError, match=r"load: call prepare"):
        accelerator.load("x.pt")
    accelerator.prepare(*training()[:2])
    with pytest.raises(OrderError, match="before prepare"):
        accelerator.setup_gpu_training("auto")


def test_two_models_with_their_optimizers_are_one_training(tmp_path):
    seed()
    accelerator = TrainingAccelerator()
    pairs = []
    for _ in range(2):
        model = network()
        pairs.append(accelerator.prepare(model, torch.optim.Adam(model.parameters())))
    for model, optimizer in pairs:
        accelerator.backward(model(torch.randn(4, 6)).square().mean())
        accelerator.step(optimizer)
    accelerator.save(tmp_path / "both.pt")
    before = [weights(model) for model, _ in pairs]
    for model, _ in pairs:
        nn.init.zeros_(model[0].weight)
    accelerator.load(tmp_path / "both.pt")
    assert all(same(kept, weights(model)) for kept, (model, _) in zip(before, pairs, strict=True))


def accumulated(accelerator, steps):
    with accelerator.accumulate(steps):
        pass


WRONG = {
    "save": lambda made, _: made.save(None),
    "load": lambda made, _: made.load(3),
    "step": lambda made, _: made.step(3),
    "clip": lambda made, optimizer: made.clip(optimizer, "much"),
    "clip of nothing": lambda made, _: made.clip(None, 1.0),
    "warm_up of nothing": lambda made, _: made.warm_up("optimizer", 3),
    "warm_up": lambda made, optimizer: made.warm_up(optimizer, "three"),
    "scale_learning_rate": lambda made, optimizer: made.scale_learning_rate(optimizer, "32", 64),
    "accumulate": lambda made, _: accumulated(made, "two"),
    "auto_optimize_config": lambda made, _: auto_optimize_config(3),
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_type_is_one_sentence_that_names_the_argument(call):
    accelerator = TrainingAccelerator({"mixed_precision": False})
    model = torch.nn.Linear(2, 2)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(FlatoutError) as caught:
        WRONG[call](accelerator, optimizer)
    assert isinstance(caught.value, TypeError | ValueError)
    named = ("path", "optimizer", "max_norm", "steps", "batch", "source")
    assert any(name in str(caught.value) for name in named), str(caught.value)


class Broken(torch.optim.SGD):
    def step(self, closure=None):
        raise AttributeError("of the optimizer's own")


def test_an_error_of_the_optimizers_own_step_stays_what_it_is():
    accelerator = TrainingAccelerator({"mixed_precision": False})
    model = torch.nn.Linear(2, 2)
    model, optimizer = accelerator.prepare(model, Broken(model.parameters(), lr=0.1))
    with pytest.raises(AttributeError, match="of the optimizer's own"):
        accelerator.step(optimizer)
