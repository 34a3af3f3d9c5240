"""What the script's parts already say of a knob is what a trial would have said, and nothing is put on for it."""

import pytest

torch = pytest.importorskip("torch")

from stage import Net, Training, staged
from torch import nn

from _flatout_agent.knobs.registry import KNOBS
from _flatout_agent.trial.predicted_outcomes import ASKED, foretold

HANDLES_ITSELF = {"pin_memory": True, "num_workers": 1, "persistent_workers": True}


class Low(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3 * 8 * 8, 5, dtype=torch.bfloat16)

    def forward(self, x):
        return self.layer(x.flatten(1).bfloat16()).float()


KINDS = {
    "plain": {},
    "with workers": {"num_workers": 1, "persistent_workers": True},
    "in bf16, without convolutions": {"model": Low},
    "fused": {"optimizer": lambda p: torch.optim.SGD(p, lr=0.1, fused=True)},
    "no fused kernel": {"optimizer": lambda p: torch.optim.Adadelta(p, lr=0.1)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_foretold_is_what_comes_of_it(kind):
    with staged(Training(**KINDS[kind])) as stage:
        scene, board = stage.scene, stage.board
        before = {name: type(root) for name, root in enumerate(scene.roots)}
        told = foretold(scene)
        assert {name: type(root) for name, root in enumerate(scene.roots)} == before
        assert not board.on
        for name, values in told.items():
            for value, outcome in values.items():
                assert outcome["status"] != "applied"
                assert board.set({name: value})[name].told() == outcome, name
                board.set({})


def test_each_says_what_it_should():
    def of(**changes):
        with staged(Training(**changes)) as stage:
            return {name: outcome for name, values in foretold(stage.scene).items() for outcome in values.values()}

    assert "precision" not in of()
    assert "channels_last" not in of(model=Net)
    low = of(model=Low)
    assert (low["precision"]["status"], low["channels_last"]["code"]) == ("already", "no-2d-convolutions")
    assert of(**KINDS["with workers"])["persistent_workers"] == {"status": "already", "code": "script-set-it", "details": {}}
    assert of(**KINDS["fused"])["fused_optimizer"]["status"] == "already"
    assert of(**KINDS["no fused kernel"])["fused_optimizer"]["status"] == "refused"
    assert of()["cudnn_benchmark"]["code"] == "no-cuda-device"


def test_every_name_and_value_is_one_of_a_knob():
    assert set(ASKED) <= set(KNOBS)
