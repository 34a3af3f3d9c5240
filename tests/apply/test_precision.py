"""Mixed precision: dtype seen inside, float32 outside, the script's own ways respected, no trace."""

import copy
import io
import pickle
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

from stage import Net, Pictures, Training, same_bits, staged
from torch import nn

from _flatout_agent.knobs.nested_tensors import changed_tensors
from _flatout_agent.knobs.root_modules import RootFinder


def test_seen_inside_and_float32_outside():
    training = Training(epochs=1)
    dtypes = set()
    with staged(training) as stage:
        assert stage.board.set({"precision": "bf16"})["precision"].status == "applied"
        assert stage.board.proofs()["precision"].code == "not-called-yet"
        training.run(lambda step: dtypes.add(training.model(training.loader.dataset.x[:2]).dtype))
        proof = stage.board.proofs()["precision"]
    assert proof.status == "applied"
    assert "convolution" in " ".join(proof.details["operations"])
    assert dtypes == {torch.float32}
    assert all(parameter.dtype == torch.float32 for parameter in training.model.parameters())


def test_it_learns_about_the_same_and_leaves_no_trace():
    plain = Training().run()
    training = Training()
    with staged(training) as stage:
        stage.board.set({"precision": "bf16"})
        training.run()
    assert type(training.model) is Net
    assert training.steps == plain.steps
    assert training.order == plain.order
    assert abs(sum(training.losses[-12:]) - sum(plain.losses[-12:])) < 0.3 * sum(plain.losses[-12:])
    assert not same_bits(training.weights(), plain.weights())


def test_evaluation_runs_plain():
    training = Training()
    x = training.loader.dataset.x[:4]
    training.model.eval()
    before = training.model(x)
    with staged(training) as stage:
        stage.board.set({"precision": "bf16"})
        assert torch.equal(training.model(x), before)
        training.model.train()
        with torch.no_grad():
            training.model(x)
        assert stage.board.proofs()["precision"].code == "not-called-yet"


def test_put_on_and_off_between_steps_is_as_plain():
    plain = Training().run()
    training = Training()

    with staged(training) as stage:
        stage.board.set({"precision": "bf16", "channels_last": "on", "fused_optimizer": "on"})
        stage.board.set({})
        training.run()
    assert same_bits(training.weights(), plain.weights())


def test_seen_from_outside_nothing_changes():
    training = Training()
    model = training.model
    before, text, bytes_before = pickle.dumps(model), repr(model), saved(model)
    keys = list(model.state_dict())
    with staged(training) as stage:
        stage.board.set({"precision": "bf16"})
        assert type(model) is not Net
        assert model.__class__ is Net
        assert isinstance(model, Net)
        assert type(model).__name__ == "Net"
        assert repr(model) == text
        assert list(model.state_dict()) == keys
        assert pickle.dumps(model) == before
        assert saved(model) == bytes_before
        twin = copy.deepcopy(model)
        assert type(twin) is Net
        shallow = copy.copy(model)
        assert type(shallow) is Net
        made = type(model)()
        made.train()(training.loader.dataset.x[:2])
        assert type(made) is Net
        # A deep copy runs its own weights.
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.zero_()
        assert twin(training.loader.dataset.x[:2]).abs().sum() == 0
    assert type(model) is Net


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    return file.getvalue()


class Float32Autocast:
    """A torch whose autocast is on in float32, as CUDA's may be."""

    def __init__(self, dtype):
        self.bfloat16, self.float16 = torch.bfloat16, torch.float16
        self.is_autocast_enabled = lambda kind: kind == "cuda"
        self.get_autocast_dtype = lambda kind: dtype


@pytest.mark.parametrize(("dtype", "low"), [(torch.float32, False), (torch.bfloat16, True), (torch.float16, True)])
def test_autocast_is_told_by_its_dtype(dtype, low):
    from _flatout_agent.knobs.root_modules import autocast_is_on

    assert autocast_is_on(Float32Autocast(dtype)) is low


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_one_channel_lie_with_their_channels_last(channels):
    layers = [nn.Conv2d(channels, 8, 3), nn.Conv2d(8, 8, 3)]
    training = Training(lambda: nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)))
    batch = torch.randn(4, channels, 10, 12)
    plain = training.model(batch)
    with staged(training) as stage:
        stage.board.set({"channels_last": "on"})
        torch.testing.assert_close(training.model(batch), plain)
        proof = stage.board.proofs()["channels_last"]
    assert (proof.status, proof.details["activation"]) == ("applied", "channels_last")


def test_the_scripts_own_autocast_is_respected():
    training = Training()
    with staged(training) as stage:
        stage.board.set({"precision": "bf16"})
        with torch.autocast("cpu", torch.bfloat16):
            assert training.model(training.loader.dataset.x[:2]).dtype == torch.bfloat16
        assert stage.board.proofs()["precision"].code == "script-uses-autocast"
        stage.scene.autocast_seen = True
        stage.board.clear()
        outcome = stage.board.set({"precision": "bf16"})["precision"]
        assert (outcome.status, outcome.code) == ("already", "script-uses-autocast")


class TakesSuperOfItsType(nn.Linear):
    def forward(self, x):
        return super(type(self), self).forward(x)


class TakesSuperOfItsClass(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)

    def forward(self, x):
        return super(self.__class__, self).forward(x)


def outcome_on(model, **knobs):
    training = Training()
    training.model = model
    training.optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if list(model.parameters()) else training.optimizer
    with staged(training) as stage:
        return next(iter(stage.board.set(knobs).values()))


@pytest.mark.parametrize(
    ("model", "value", "status", "code"),
    [
        (lambda: TakesSuperOfItsType(4, 4), "bf16", "refused", "uses-super-type-self"),
        (lambda: nn.Linear(4, 4).bfloat16(), "bf16", "already", "parameters-in-low-precision"),
        (lambda: nn.Linear(4, 4).double(), "bf16", "refused", "parameters-not-float32"),
        (lambda: nn.Linear(4, 4), "int8", "refused", "unknown-value"),
    ],
)
def test_refused(model, value, status, code):
    outcome = outcome_on(model(), precision=value)
    assert (outcome.status, outcome.code) == (status, code)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules_are_refused():
    assert outcome_on(torch.jit.script(nn.Linear(4, 4)), precision="bf16").code == "scripted-module"


def test_super_of_its_class_works():
    model = TakesSuperOfItsClass()
    training = Training()
    training.model = model
    with staged(training) as stage:
        assert stage.board.set({"precision": "bf16"})["precision"]
        assert model(torch.randn(2, 4)).shape == (2, 4)
        assert stage.board.proofs()["precision"]


class FailsInLowPrecision(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        x = nn.functional.dropout(self.norm(x), 0.5)
        y = self.linear(x)
        if y.dtype != torch.float32:
            raise TypeError("float32 only")
        return y


def test_a_model_that_raises_goes_on_plainly_and_exactly():
    x = torch.randn(8, 4)
    torch.manual_seed(3)
    plain = FailsInLowPrecision()
    torch.manual_seed(3)
    model = FailsInLowPrecision()
    torch.manual_seed(4)
    expected = plain(x)
    training = Training()
    training.model = model
    with staged(training) as stage:
        stage.board.set({"precision": "bf16"})
        torch.manual_seed(4)
        assert torch.equal(model(x), expected)
        assert same_bits(model.state_dict(), plain.state_dict())
        assert type(model) is FailsInLowPrecision
        proof = stage.board.proofs()["precision"]
        assert (proof.code, proof.details["error"]) == ("raised", "TypeError: float32 only")


def test_an_error_of_the_scripts_own_reaches_it():
    training = Training()
    with staged(training) as stage:
        stage.board.set({"precision": "bf16"})
        with pytest.raises(RuntimeError):
            training.model(torch.randn(1, 9))
        training.run()
        assert stage.board.proofs()["precision"].status == "applied"


@dataclass
class Result:
    scores: object
    name: str = "x"


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: [t, 1], lambda t: (t, None), lambda t: {"a": t, "b": 2}])
def test_structures_come_back_as_they_were(wrap):
    low = wrap(torch.ones(2, dtype=torch.bfloat16))
    high = changed_tensors(torch, low, lambda tensor: tensor.float())
    assert type(high) is type(low)
    assert "bfloat16" not in str(high)
    assert changed_tensors(torch, low, lambda tensor: tensor) is low


def test_richer_structures():
    def raised(tensor):
        return tensor.float()

    low = torch.ones(2, dtype=torch.bfloat16)
    assert changed_tensors(torch, Result(low), raised).scores.dtype == torch.float32
    assert changed_tensors(torch, Pair(low, [low]), raised).b[0].dtype == torch.float32
    kept = changed_tensors(torch, OrderedDict(a=low), raised)
    assert type(kept) is OrderedDict
    assert kept["a"].dtype == torch.float32


def test_roots_are_found_and_the_hook_goes():
    from torch.nn.modules import module as modules

    generator, critic, frozen = nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 1), nn.Linear(2, 2)
    optimizers = [torch.optim.SGD(generator.parameters(), lr=0.1), torch.optim.SGD(critic.parameters(), lr=0.1)]
    finder = RootFinder(torch)
    finder.begin()
    for _ in range(5):
        for optimizer in optimizers:
            critic(generator(frozen(torch.randn(3, 2)))).sum().backward()
            optimizer.step()
        finder.step_ended()
    assert finder.done
    assert not modules._global_forward_pre_hooks
    assert not modules._global_forward_hooks
    assert finder.roots(optimizers) == [generator, critic]
    assert finder.calls_a_step == 2
    assert not finder.autocast_seen


def test_roots_inside_wrappers_and_after_an_error():
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            return self.module(x)

    Wrapper.__name__ = "DistributedDataParallel"
    inner = nn.Linear(2, 2)
    finder = RootFinder(torch)
    finder.begin()
    with pytest.raises(RuntimeError):
        inner(torch.randn(3))
    for _ in range(4):
        with torch.autocast("cpu", torch.bfloat16):
            Wrapper(inner)(torch.randn(3, 2))
        finder.step_ended()
    assert finder.roots() == [inner]
    assert finder.autocast_seen


def test_fp16_is_scaled_and_the_scripts_clipping_sees_true_gradients():
    plain = Training(epochs=1)
    training = Training(epochs=1)
    norms = {}
    for run in (plain, training):
        run.model.drop.p = 0.0  # on half as many bytes it would draw another mask
        step = run.optimizer.step

        def clipped(run=run, step=step):
            norms.setdefault(run, []).append(float(nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)))
            return step()

        run.optimizer.step = clipped
    plain.run()
    with staged(training) as stage:
        assert stage.board.set({"precision": "fp16"})["precision"].status == "applied"
        training.run()
        proof = stage.board.proofs()["precision"]
    assert proof.status == "applied", proof
    assert proof.details["scale"] == 2.0**16
    assert proof.details["scaled_backwards"] == 12
    # The first step's gradients are the plain ones but for the precision of fp16.
    assert norms[training][0] == pytest.approx(norms[plain][0], rel=0.1)
    assert torch.autograd.backward.__module__ == "torch.autograd"


def scaled(model, optimizer):
    from _flatout_agent.knobs.knob import Scene
    from _flatout_agent.knobs.loss_scale import LossScale

    scene = Scene(torch)
    scene.found([model], [optimizer])
    scale = LossScale(torch)
    return scale, scale.put_on(scene)


def test_scaling_is_exact_through_accumulation_and_use_outside_the_model():
    torch.manual_seed(0)
    x = torch.randn(4, 3)

    def gradients(scaling):
        torch.manual_seed(1)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scale, why = scaled(model, optimizer) if scaling else (None, None)
        assert why is None
        try:
            for _ in range(3):
                (model(x).pow(2).mean() + 0.1 * model.weight.pow(2).sum()).backward()
            return [parameter.grad.clone() for parameter in model.parameters()]
        finally:
            if scale:
                scale.take_off()

    assert all(torch.equal(a, b) for a, b in zip(gradients(False), gradients(True), strict=True))


def test_an_overflow_skips_the_step_and_halves_the_scale():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    scale, _ = scaled(model, optimizer)
    optimizer.zero_grad()
    (model(torch.ones(1, 3)).sum() * float("inf")).backward()
    optimizer.step()
    scale.take_off()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert (scale.skipped, scale.scale) == (1, 2.0**15)


def test_where_scaling_cannot_be_proved_it_is_refused():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = model.weight.register_hook(lambda gradient: gradient)
    assert scaled(model, optimizer)[1][0] == "hooks-on-parameters"
    handle.remove()
    lbfgs = torch.optim.LBFGS(model.parameters())
    assert scaled(model, lbfgs)[1][0] == "step-with-closure"
    scaler = torch.amp.GradScaler("cpu")
    assert scaled(model, optimizer)[1][0] == "script-has-own-scaler"
    del scaler


def test_a_gradient_outside_the_model_ends_fp16():
    training = Training()
    x = training.loader.dataset.x[:2].clone().requires_grad_()
    with staged(training) as stage:
        stage.board.set({"precision": "fp16"})
        training.model(x).sum().backward()
        assert x.grad.abs().max() < 1000
        assert stage.board.proofs()["precision"].code == "gradient-outside-the-model"
        assert type(training.model) is Net


def test_pictures_are_the_same_each_time():
    assert torch.equal(Pictures().x, Pictures().x)
