"""compile=graphs: what is recorded, what is not and why, and that a replay is the same training.

There is no card here: at the one seam, `Recorder`, stands a tape of operations (`taped.py`).
"""

import argparse
import copy
import dataclasses
import random
import types
import warnings

import pytest

torch = pytest.importorskip("torch")

from stage import Net, Training, same_bits, staged
from taped import Again, Here, RecordedHere, Taped, TapedForward
from torch import nn

from _flatout_agent.knobs import script_source
from _flatout_agent.knobs.compile import Recorded
from _flatout_agent.knobs.graphs import training_graphs
from _flatout_agent.knobs.graphs.evaluation_graphs import CALLS_BEFORE
from _flatout_agent.knobs.graphs.forward_purity import Draws
from _flatout_agent.knobs.graphs.graph_recording import twins_of
from _flatout_agent.knobs.knob import EXACT
from _flatout_agent.knobs.registry import KNOBS

plain = Net.forward
KINDS = KNOBS


@pytest.fixture(autouse=True)
def recorded_here(monkeypatch):
    monkeypatch.setattr("_flatout_agent.knobs.compile.Recorded", RecordedHere)


def trained(training, at_step=lambda step: None, **beside):
    """(its proof, the training) with graphs from the first step to the last."""
    with staged(training, KINDS) as stage:
        outcomes = stage.board.set({"compile": "graphs", **beside})
        assert outcomes["compile"].status == "applied", outcomes
        training.run(at_step)
        return stage.board.proofs()["compile"], training


def same_as_plain(make, at_step=lambda training, step: None):
    plain = make()
    plain.run(lambda step: at_step(plain, step))
    other = make()
    proof, _ = trained(other, lambda step: at_step(other, step))
    assert other.losses == plain.losses
    assert same_bits(other.weights(), plain.weights())
    return proof


def test_the_same_bits_with_dropout_statistics_and_momentum():
    proof = same_as_plain(Training)
    assert proof.status == "applied", proof
    assert proof.details["replays"] == proof.details["calls"] - 1 == 23  # the first one is watched
    assert proof.details["cuda_graphs"] == 2
    assert proof.details["exact"] is True


def test_what_is_found_exact_is_said_so():
    training = Training()
    with staged(training, KINDS) as stage:
        stage.board.set({"compile": "graphs"})
        training.run()
        assert stage.board.numerics()["compile"] == EXACT


def test_an_lstm(monkeypatch):
    monkeypatch.setattr(Here, "kind", Again)

    class Speech(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(24, 8, batch_first=True, bidirectional=True)
            self.head = nn.Linear(16, 5)

        def forward(self, x):
            y, _ = self.rnn(x.flatten(2).transpose(1, 2).reshape(x.shape[0], 8, 24))
            return self.head(y.mean(dim=1))

    assert same_as_plain(lambda: Training(model=Speech)).details["replays"] == 23


def test_an_epochs_last_batch_runs_plain_and_changes_nothing():
    proof = same_as_plain(lambda: Training(batch_size=5))
    assert proof.status == "applied", proof
    assert proof.details["replays"] == 17  # 10 batches an epoch, the last one smaller: twice seen is not enough
    assert proof.details["cuda_graphs"] == 2


def test_a_further_shape_that_stays_is_recorded():
    training = Training(epochs=6, batch_size=5)
    proof, _ = trained(training)
    assert proof.details["cuda_graphs"] == 4
    assert proof.details["replays"] == 53 + 3


class Accumulating(Training):
    def run(self, at_step=lambda step: None):
        for _ in range(self.epochs):
            for number, (x, y, _) in enumerate(self.loader):
                loss = nn.functional.cross_entropy(self.model(x), y)
                loss.backward()
                if number % 3 == 2:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    self.steps += 1
                    at_step(self.steps)
                self.losses.append(float(loss.detach()))
        return self


def test_gradients_that_are_added_up():
    assert same_as_plain(Accumulating).details["replays"] == 21  # one step is watched


class Keeping(Training):
    """Keeps what it was given: outputs, and gradients beyond the next backward pass."""

    def run(self, at_step=lambda step: None):
        self.outputs, self.gradients = [], []
        for x, y, _ in self.loader:
            out = self.model(x)
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            self.outputs.append(out.detach())
            self.gradients.append([parameter.grad for parameter in self.model.parameters()])
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.losses.append(float(loss.detach()))
        return self


def test_what_is_kept_is_not_written_over():
    plain = Keeping().run()
    other = Keeping()
    trained(other)
    assert all(torch.equal(a, b) for a, b in zip(plain.outputs, other.outputs, strict=True))
    for before, after in zip(plain.gradients, other.gradients, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


class Twice(Training):
    def run(self, at_step=lambda step: None):
        for x, y, _ in self.loader:
            loss = nn.functional.cross_entropy(self.model(x) + self.model(x.flip(3)), y)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(float(loss.detach()))
        return self


def test_called_twice_a_step_the_second_runs_plain():
    proof = same_as_plain(Twice)
    assert proof.details["replays"] == proof.details["again"] == 11  # the first step is watched


class Thrice(Training):
    def run(self, at_step=lambda step: None):
        for x, y, _ in self.loader:
            out = self.model(x) + self.model(x.flip(3)) + self.model(x.flip(2))
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(float(loss.detach()))
        return self


def test_where_most_calls_run_plain_there_is_nothing_to_claim():
    proof = same_as_plain(Thrice)
    assert (proof.status, proof.code) == ("refused", "called-again-in-a-step")


def test_evaluation_between_epochs_is_plain_and_does_not_record_again():
    class Evaluating(Training):
        def run(self, at_step=lambda step: None):
            for _ in range(3):
                self.epochs = 1
                super().run(at_step)
                self.model.eval()
                with torch.no_grad():
                    self.losses.append(float(self.model(self.loader.dataset.x).sum()))
                self.model.train()
            return self

    proof = same_as_plain(Evaluating)
    assert proof.details["cuda_graphs"] == 2
    assert proof.details["replays"] == 35


# -- what changes in mid-training ------------------------------------------------------------------------------------


def freeze(training, step):
    if step == 7:
        training.model.features[0].weight.requires_grad_(False)


def other_memory(training, step):
    if step == 7:
        for parameter in training.model.parameters():
            parameter.data = parameter.data.clone()


def other_dropout(training, step):
    if step in (7, 15):
        training.model.drop.p = 0.1 * step / 7


def other_layer(training, step):
    if step == 7:
        torch.manual_seed(3)
        training.model.head = nn.Linear(8 * 9, 5)
        training.optimizer.add_param_group({"params": training.model.head.parameters()})


def one_layer_more(training, step):
    if step == 7:
        training.model.features.append(nn.Identity())


def other_rate(training, step):
    for group in training.optimizer.param_groups:
        group["lr"] = 0.1 / step


def a_hook(training, step):
    if step == 7:
        training.model.features[1].register_forward_hook(lambda module, args, output: output * 0.5)


def reloaded(training, step):
    if step == 7:
        state = {name: tensor * 0.9 if tensor.is_floating_point() else tensor for name, tensor in training.weights().items()}
        training.model.load_state_dict(state)


CHANGES = [freeze, other_memory, other_dropout, other_layer, one_layer_more, other_rate, a_hook, reloaded]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_change_in_mid_training_is_followed(change):
    same_as_plain(Training, change)


def test_a_number_that_changes_every_step_is_given_up_and_followed():
    class Annealed(Net):
        def __init__(self):
            super().__init__()
            self.sharpness = 1.0

        def forward(self, x):
            return super().forward(x) * self.sharpness

    def anneal(training, step):
        training.model.sharpness = 1.0 - step / 100

    proof = same_as_plain(lambda: Training(model=Annealed), anneal)
    assert (proof.status, proof.code) == ("refused", "changes-too-often")


SCALE = 1.0


def test_a_constant_of_the_file_is_looked_at_every_time():
    class Scaled(Net):
        def forward(self, x):
            return super().forward(x) * SCALE

    def change(training, step):
        global SCALE
        SCALE = 1.0 if step < 7 else 0.5

    def make():
        change(None, 1)
        return Training(model=Scaled)

    assert same_as_plain(make, change).details["cuda_graphs"] == 4


# -- what is not recorded ----------------------------------------------------------------------------------------------


class Config:
    depth = 2.0


CONFIG = Config()
TABLE = {"scale": 1.0}


def of_an_object(self, x):
    return plain(self, x) * CONFIG.depth


def of_a_class(self, x):
    return plain(self, x) * Config.depth


def of_a_table(self, x):
    return plain(self, x) * TABLE["scale"]


def of_its_own_object(self, x):
    return plain(self, x) * self.config.depth


def keeps_a_count(self, x):
    self.seen = self.seen + 1
    return plain(self, x)


def draws_in_python(self, x):
    return plain(self, x) * (0.5 if random.random() < 0.5 else 1.0)


def prints(self, x):
    print(end="")
    return plain(self, x)


def reads_a_number(self, x):
    out = plain(self, x)
    return out / max(1.0, out.abs().max().item())


def hooks_its_output(self, x):
    out = plain(self, x)
    out.register_hook(lambda gradient: gradient * 0.5)
    return out


def of_its_history(self, x):
    self.history.append(float(x.shape[0]))
    return plain(self, x) / len(self.history)


FORWARDS = [of_an_object, of_a_class, of_a_table, of_its_own_object, keeps_a_count, draws_in_python]
FORWARDS += [prints, reads_a_number, hooks_its_output, of_its_history]


REASONS = ("python-may-differ", "host-draws", "changes-in-place", "trains-more-than-itself")


def net_with(forward):
    kind = type("Own", (Net,), {"forward": forward})

    def make():
        net = kind()
        net.config, net.history, net.seen = Config(), [], 0
        return net

    return make


@pytest.mark.parametrize("forward", FORWARDS, ids=lambda f: f.__name__)
def test_a_pass_that_may_differ_runs_plain(forward):
    proof = same_as_plain(lambda: Training(model=net_with(forward)))
    assert proof.status == "refused"
    assert proof.code in REASONS, proof


def test_draws_of_the_host_are_seen():
    draws = Draws(torch, "cuda")
    assert not draws.seen()
    torch.rand(())
    assert draws.seen()
    draws = Draws(torch, "cuda")
    random.random()
    assert draws.seen()


def with_loss(self, x, y=None, scale=1.0):
    """As language models are written: the loss is computed inside, and returned beside what it was computed from."""
    out = plain(self, x)
    loss = nn.functional.cross_entropy(out, y) * scale * self.settings.weight
    return (out, loss) if self.settings.how == "tuple" else {"loss": loss, "logits": out, "none": None}


@dataclasses.dataclass
class Settings:
    how: str
    weight: float = 1.0


class WithLoss(Net):
    forward = with_loss

    def __init__(self, how, settings):
        super().__init__()
        self.settings = settings(how=how, weight=1.0)


class LossInside(Training):
    how, settings = "tuple", Settings

    def __init__(self, **settings):
        super().__init__(model=lambda: WithLoss(self.how, self.settings), **settings)

    def loss_of(self, answer, step):
        return answer[1] if self.how == "tuple" else answer["loss"]

    def run(self, at_step=lambda step: None):
        for _ in range(self.epochs):
            for x, y, _ in self.loader:
                loss = self.loss_of(self.model(x, y=y, scale=0.5), self.steps)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.losses.append(float(loss.detach()))
                self.steps += 1
                at_step(self.steps)
        return self


@pytest.mark.parametrize("how", ["tuple", "dict"])
def test_a_loss_that_is_returned_beside_other_outputs(how):
    kind = type("Kind", (LossInside,), {"how": how})
    proof = same_as_plain(kind)
    assert proof.status == "applied", proof
    assert proof.details["replays"] == 23
    assert proof.details["exact"] is True


@pytest.mark.parametrize("kind", [Settings, types.SimpleNamespace, argparse.Namespace])
def test_settings_that_change_in_mid_training_are_followed(kind, monkeypatch):
    monkeypatch.setattr(LossInside, "settings", kind)

    def lighter(training, step):
        if step == 9:
            training.model.settings.weight = 0.25

    proof = same_as_plain(LossInside, lighter)
    assert proof.status == "applied", proof
    assert proof.details["cuda_graphs"] == 4


def test_outputs_that_get_a_gradient_only_sometimes():
    class Sometimes(LossInside):
        def loss_of(self, answer, step):
            out, loss = answer
            if step % 5 == 3:
                return loss + 0.01 * out.square().mean()
            return out.square().mean() if step % 5 == 4 else loss

    proof = same_as_plain(Sometimes)
    assert proof.details["replays"] == 23


def test_weights_that_nothing_trains_in_a_step_have_no_gradient_rather_than_zeros():
    class TwoHeads(Net):
        def __init__(self):
            super().__init__()
            self.other = nn.Linear(5, 5)

        def forward(self, x):
            out = plain(self, x)
            return out, self.other(out.detach())

    class InTurn(Training):
        def __init__(self):
            super().__init__(model=TwoHeads, optimizer=lambda p: torch.optim.Adam(p, weight_decay=0.1))

        def run(self, at_step=lambda step: None):
            for number, (x, y, _) in enumerate(self.loader):
                loss = nn.functional.cross_entropy(self.model(x)[number % 2], y)
                loss.backward()
                self.order.append([name for name, one in self.model.named_parameters() if one.grad is None])
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.losses.append(float(loss.detach()))
            return self

    alone, other = InTurn().run(), InTurn()
    proof, _ = trained(other)
    assert proof.details["replays"] == 11
    assert other.order == alone.order
    assert same_bits(other.weights(), alone.weights())


def test_large_outputs_beside_the_loss_are_not_recorded(monkeypatch):
    monkeypatch.setattr(training_graphs, "LARGEST_OUTPUTS", 16)
    assert same_as_plain(LossInside).code == "large-outputs"


class Validating(Training):
    """Validates in mid-training, and once in training mode without gradients, which draws for its dropout."""

    guard = torch.no_grad

    def run(self, at_step=lambda step: None):
        self.seen = []
        for number, (x, y, _) in enumerate(self.loader):
            loss = nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(float(loss.detach()))
            at_step(number)
            if number % 4 == 3:
                self.validate(x)
        return self

    def validate(self, x):
        with self.guard():
            self.seen.append(self.model(x).clone())
            self.model.eval()
            self.seen += [self.model(x * scale) for scale in range(1, 9)]
            self.model.train()


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_a_validation_is_replayed_with_the_weights_as_they_are(guard):
    kind = type("Kind", (Validating,), {"guard": staticmethod(guard)})
    alone, other = kind().run(), kind()
    proof, _ = trained(other)
    assert other.losses == alone.losses
    assert all(torch.equal(one, own) for one, own in zip(other.seen, alone.seen, strict=True))
    assert all(one.is_inference() == own.is_inference() for one, own in zip(other.seen, alone.seen, strict=True))
    assert proof.details["evaluations"] == 3 * 8 - CALLS_BEFORE - 1


def test_a_validation_with_gradients_runs_plain_and_one_with_other_settings_is_recorded_anew():
    class Probing(Validating):
        def validate(self, x):
            self.model.eval()
            self.seen += [self.model(x * scale) for scale in range(1, 9)]
            self.model.train()

    class Rescaling(Validating):
        def validate(self, x):
            self.model.settings.weight = 1.0 + len(self.seen)
            super().validate(x)

    # The second validation of the last one is recorded; the third has another setting.
    for make, replayed in ((Probing, 0), (lambda: Rescaling(model=WithScale), 7)):
        alone, other = make().run(), make()
        proof, _ = trained(other)
        assert all(torch.equal(one, own) for one, own in zip(other.seen, alone.seen, strict=True))
        assert proof.details.get("evaluations", 0) == replayed


class WithScale(Net):
    def __init__(self):
        super().__init__()
        self.settings = Settings("", 1.0)

    def forward(self, x):
        return plain(self, x) * self.settings.weight


def test_a_validation_whose_replays_differ_runs_plain(monkeypatch):
    class Wrong(TapedForward):
        def forward(self):
            super().forward()
            self.outs[0].add_(1e-3)

    monkeypatch.setattr("taped.TapedForward", Wrong)
    alone, other = Validating().run(), Validating()
    proof, _ = trained(other)
    assert proof.status == "applied"
    assert "evaluations" not in proof.details
    assert all(torch.equal(one, own) for one, own in zip(other.seen, alone.seen, strict=True))


def test_what_cannot_be_put_together_again_runs_plain():
    class Box:
        def __init__(self, out):
            self.out = out

    class Boxed(Training):
        def run(self, at_step=lambda step: None):
            for x, y, _ in self.loader:
                loss = nn.functional.cross_entropy(self.model(x).out, y)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.losses.append(float(loss.detach()))
            return self

    proof = same_as_plain(lambda: Boxed(model=net_with(lambda self, x: Box(plain(self, x)))))
    assert (proof.code, proof.details["kind"]) == ("several-outputs", "Box")


class Adversaries(Training):
    """A generator and a critic with an optimizer each: the critic steps while the generator waits for its backward pass."""

    def __init__(self):
        super().__init__(model=lambda: nn.ModuleList([nn.Linear(6, 192), nn.Sequential(nn.Flatten(), nn.Linear(192, 1))]))
        self.maker, self.critic = self.model
        self.optimizers = [torch.optim.Adam(part.parameters(), lr=0.01) for part in self.model]

    def run(self, at_step=lambda step: None):
        yes = nn.functional.softplus
        for x, _, _ in self.loader:
            noise = torch.randn(len(x), 6)
            made = self.maker(noise)
            self.model.zero_grad()
            (yes(-self.critic(x)).mean()).backward()
            (yes(self.critic(made.detach().view_as(x))).mean()).backward()
            self.optimizers[1].step()
            loss = yes(-self.critic(made.view_as(x))).mean()
            loss.backward()
            self.optimizers[0].step()
            self.losses.append(float(loss.detach()))
        return self


def test_several_optimizers_that_step_in_turn():
    alone = Adversaries().run()
    other = Adversaries()
    with staged(other, KINDS) as stage:
        stage.scene.found([other.maker, other.critic], other.optimizers, [other.loader])
        assert stage.board.set({"compile": "graphs"})["compile"].status == "applied"
        other.run()
        proof = stage.board.proofs()["compile"]
    assert other.losses == alone.losses
    assert same_bits(other.weights(), alone.weights())
    assert proof.status == "applied", proof
    assert proof.details["replays"] == 11 + 2 * 11  # of the critic's three calls a step one is for the maker's sake
    assert proof.details["again"] == 0


def test_a_recording_that_fails_is_given_up_once_and_the_generator_mended(monkeypatch):
    asked = []

    def fails(self, run, inputs, wanted, module):
        asked.append(self)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(Here, "record", fails)
    proof = same_as_plain(Training)
    assert proof.code == "cannot-be-recorded"
    assert "not permitted" in proof.details["error"]
    assert [one.mended for one in asked] == [1]


def test_a_replay_that_gives_other_numbers_is_refused(monkeypatch):
    class Wrong(Taped):
        def forward(self):
            super().forward()
            self.outs[0].mul_(1.5)

    monkeypatch.setattr(Here, "kind", Wrong)
    assert same_as_plain(Training).code == "replay-differs"


def test_a_recording_that_keeps_old_weights_is_refused(monkeypatch):
    """Right on the first replay, wrong after the first update: seen before there is one."""

    class OfACopy(Again):
        def __init__(self, run, inputs, wanted, module):
            own = [next(name for name, one in module.named_parameters() if one is each) for each in wanted]
            twin = copy.deepcopy(module)
            weights = [dict(twin.named_parameters())[name] for name in own]
            super().__init__(lambda given: [twin(*given)], inputs, weights, twin)

    monkeypatch.setattr(Here, "kind", OfACopy)
    assert same_as_plain(Training).code == "replay-differs"
    assert (
        same_as_plain(lambda: Training(model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 5)))).code == "replay-differs"
    )


def test_twins_share_the_memory_of_the_weights_also_in_recurrent_layers():
    model = nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 3, num_layers=2, bidirectional=True))
    own = dict(model.named_parameters())
    listed, known = list(model[1]._flat_weights), list(model[1]._flat_weight_refs)
    with twins_of(torch, model) as twins:
        for name, twin in model.named_parameters():
            assert twin is twins[id(own[name])] is not own[name]
            assert twin.data_ptr() == own[name].data_ptr()
        assert all(twin is twins[id(weight)] for twin, weight in zip(model[1]._flat_weights, listed, strict=True))
        assert not model[1]._weights_have_changed()
        model(torch.ones(2, 4))
        assert all(twin.data_ptr() == own[name].data_ptr() for name, twin in model.named_parameters())
    assert dict(model.named_parameters()) == own
    assert all(one is weight for one, weight in zip(model[1]._flat_weights, listed, strict=True))
    assert model[1]._flat_weight_refs == known


def test_backward_through_an_older_step_is_an_error_and_never_a_wrong_gradient():
    training = Training(epochs=1)
    with staged(training, KINDS) as stage, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stage.board.set({"compile": "graphs"})
        (x, y, _), *_ = list(training.loader)
        nn.functional.cross_entropy(training.model(x), y).backward()
        training.optimizer.step()
        first = nn.functional.cross_entropy(training.model(x), y)
        training.optimizer.step()  # without a backward pass: nobody can know that the first is still waited for
        nn.functional.cross_entropy(training.model(x), y).backward()
        with pytest.raises(RuntimeError, match="compile graphs"):
            first.backward()


def test_retain_graph_in_the_source_is_seen(monkeypatch, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("loss.backward(retain_graph=True)\n")
    monkeypatch.setattr(script_source, "own_files", lambda: [str(script)])
    with staged(Training(), KINDS) as stage:
        assert stage.board.set({"compile": "graphs"})["compile"].code == "graph-is-kept"


def test_what_stands_against_it_from_the_start():
    with staged(Training(), KINDS) as stage:
        stage.scene.graph_kept_seen = True
        assert stage.board.set({"compile": "graphs"})["compile"].code == "graph-is-kept"
    with staged(Training(), KINDS) as stage:
        stage.scene.compiled_seen = True
        assert stage.board.set({"compile": "graphs"})["compile"].code == "script-compiles"
    with staged(Training()) as stage:
        assert Recorded().put_on(stage.scene, "graphs").code == "no-cuda-device"
    training = Training()
    training.model.register_forward_hook(lambda *_: None)
    with staged(training, KINDS) as stage:
        assert stage.board.set({"compile": "graphs"})["compile"].code == "hooks-on-root"


def test_no_trace():
    before = nn.Module.__setattr__
    training = Training(epochs=1)
    kind = type(training.model)
    with staged(training, KINDS) as stage:
        stage.board.set({"compile": "graphs"})
        assert nn.Module.__setattr__ is not before
        training.run()
        stage.board.set({})
        assert nn.Module.__setattr__ is before
        assert type(training.model) is kind
        assert not training.optimizer._optimizer_step_post_hooks


def test_with_bf16_beside_it():
    def make():
        return Training(epochs=1)

    with staged(make(), KINDS) as stage:
        stage.board.set({"precision": "bf16"})
        plain = stage.training.run()
    proof, other = trained(make(), precision="bf16")
    assert proof.status == "applied", proof
    assert other.losses == plain.losses
    assert training_graphs.MOST_VARIANTS * 2 >= proof.details["cuda_graphs"] == 2
