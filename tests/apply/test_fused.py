"""Fused optimizers: on in the groups, off in the checkpoints, the script's own choice left alone."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")

from stage import Net, Training, same_bits, staged

ADAM = {"optimizer": lambda p: torch.optim.AdamW(p, lr=0.01)}


@pytest.mark.parametrize(
    "optimizer", [lambda p: torch.optim.AdamW(p, lr=0.01), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)]
)
def test_on_and_proved(optimizer):
    plain = Training(optimizer=optimizer).run()
    training = Training(optimizer=optimizer)
    with staged(training) as stage:
        outcome = stage.board.set({"fused_optimizer": "on"})["fused_optimizer"]
        assert outcome.status == "applied", outcome
        assert stage.board.proofs()["fused_optimizer"].code == "no-step-yet"
        training.run()
        proof = stage.board.proofs()["fused_optimizer"]
        assert (proof.status, proof.details["kinds"]) == ("applied", ["fused"])
    assert training.losses == pytest.approx(plain.losses, rel=1e-2)


def test_checkpoints_are_the_scripts_own_and_taking_off_leaves_nothing():
    training = Training(**ADAM, epochs=1)
    before = copy.deepcopy(training.optimizer.state_dict()["param_groups"])
    attributes = set(vars(training.optimizer))
    with staged(training) as stage:
        stage.board.set({"fused_optimizer": "on"})
        training.run()
        assert training.optimizer.param_groups[0]["fused"] is True
        saved = training.optimizer.state_dict()
        assert saved["param_groups"] == before
        # Resuming from a plain checkpoint while it is on: it stays on, and steps.
        training.optimizer.load_state_dict(copy.deepcopy(saved))
        assert training.optimizer.param_groups[0]["fused"] is True
        training.run()
        assert stage.board.proofs()["fused_optimizer"].status == "applied"
    assert training.optimizer.param_groups[0]["fused"] is None
    assert training.optimizer.state_dict()["param_groups"] == before
    assert set(vars(training.optimizer)) == attributes
    assert not training.optimizer._optimizer_state_dict_post_hooks
    plain = Training(**ADAM)
    plain.optimizer.load_state_dict(saved)
    plain.run()


def test_a_checkpoint_is_the_same_bytes_after_a_change_back():
    plain, training = Training(**ADAM, epochs=1).run(), Training(**ADAM, epochs=1)
    with staged(training) as stage:
        stage.board.set({"fused_optimizer": "on"})
        stage.board.set({})
        training.run()
    assert saved(plain.optimizer.state_dict()) == saved(training.optimizer.state_dict())


def saved(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue()


class OwnStep(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)


@pytest.mark.parametrize(
    ("optimizer", "status", "code"),
    [
        (lambda p: torch.optim.AdamW(p, fused=True), "already", "script-set-fused"),
        (lambda p: torch.optim.AdamW(p, foreach=True), "refused", "script-set-foreach"),
        (lambda p: torch.optim.RMSprop(p, foreach=True), "refused", "script-set-foreach"),
        (lambda p: torch.optim.AdamW(p, foreach=False), "refused", "script-chose"),
        (lambda p: OwnStep(p, lr=0.1), "refused", "own-step"),
        (lambda p: torch.optim.LBFGS(p), "refused", "no-fused-kernel"),
        (lambda p: torch.optim.Adadelta(p), "refused", "no-fused-kernel"),
    ],
)
def test_refused(optimizer, status, code):
    with staged(Training(optimizer=optimizer)) as stage:
        outcome = stage.board.set({"fused_optimizer": "on"})["fused_optimizer"]
        assert (outcome.status, outcome.code) == (status, code)


def test_with_another_layout_the_fused_step_still_fits():
    training = Training(**ADAM)
    with staged(training) as stage:

        def at(step):
            if step == 5:
                outcomes = stage.board.set({"fused_optimizer": "on", "channels_last": "on"})
                assert all(outcome.status == "applied" for outcome in outcomes.values()), outcomes
            if step == 12:
                stage.board.set({"fused_optimizer": "on"})

        training.run(at)
        assert stage.board.proofs()["fused_optimizer"].status == "applied"


def test_channels_last_is_seen_and_goes_without_a_trace():
    plain = Training(**ADAM).run()
    training = Training(**ADAM)
    weight = training.model.features[0].weight
    with staged(training) as stage:
        seen = []

        def at(step):
            if step == 3:
                assert stage.board.set({"channels_last": "on"})["channels_last"].status == "applied"
                assert weight.is_contiguous(memory_format=torch.channels_last)
                state = training.optimizer.state[weight]
                assert state["exp_avg"].stride() == weight.stride()
                assert training.model.features[0].weight is weight
            if step == 6:
                seen.append(stage.board.proofs()["channels_last"])
                saved = training.optimizer.state_dict()["state"]
                assert all(kept["exp_avg"].is_contiguous() for kept in saved.values())
                assert training.optimizer.state[weight]["exp_avg"].stride() == weight.stride()
                training.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))
                assert training.optimizer.state[weight]["exp_avg"].stride() == weight.stride()
            if step == 12:
                stage.board.set({})
                assert type(training.model) is Net
                assert weight.is_contiguous()
                assert all(kept["exp_avg"].is_contiguous() for kept in training.optimizer.state.values())

        training.run(at)
    assert seen[0].told() == {"status": "applied", "code": "", "details": {"activation": "channels_last"}}
    assert training.losses == pytest.approx(plain.losses, rel=2e-2)


def test_channels_last_put_on_and_taken_off_is_bit_exact():
    plain = Training(**ADAM).run()
    training = Training(**ADAM)
    with staged(training) as stage:

        def at(step):
            if step == 4:
                stage.board.set({"channels_last": "on"})
                stage.board.set({})

        training.run(at)
    assert same_bits(plain.weights(), training.weights())
    assert saved(plain.optimizer.state_dict()) == saved(training.optimizer.state_dict())
    assert saved(plain.model.state_dict()) == saved(training.model.state_dict())


class Viewed(torch.nn.Module):
    """A model that must not be turned: it views what a convolution gave."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3)
        self.last = torch.nn.Linear(288, 5)

    def forward(self, x):
        y = self.first(x)
        return self.last(y.view(len(y), -1))


def test_a_model_that_views_goes_on_plainly():
    plain = Training(model=Viewed).run()
    training = Training(model=Viewed)
    with staged(training) as stage:
        stage.board.set({"channels_last": "on"})
        training.run()
        assert stage.board.proofs()["channels_last"].code == "raised"
    assert training.steps == plain.steps


def test_channels_last_refused_without_convolutions():
    training = Training(model=lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 5)))
    with staged(training) as stage:
        assert stage.board.set({"channels_last": "on"})["channels_last"].code == "no-2d-convolutions"


def test_channels_last_already():
    training = Training(model=lambda: Net().to(memory_format=torch.channels_last))
    with staged(training) as stage:
        assert stage.board.set({"channels_last": "on"})["channels_last"].status == "already"
