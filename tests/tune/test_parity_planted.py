"""Bad profiles planted in real scripts: what learns something else is refused, however well its loss looks.

Each script misbehaves where autocast is on, as scripts do: a branch for mixed precision that forgets something. With Adam a
wrong scale changes no weight and hardly the curve; a term that is left out makes the loss smaller.
"""

import os
import sys
from contextlib import ExitStack
from xml.etree import ElementTree

import pytest

pytest.importorskip("torch")

from conftest import QUIET
from flatout.base.clock import SystemClock
from flatout.base.words import Words
from flatout.launch.protection import Unprotected
from flatout.measure.parity import Verdict
from flatout.report import parity as report
from flatout.tune.confirmation.parity_runs import Gate
from flatout.tune.execution.trial_runner import Trials

SCRIPT = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

class Noisy(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        x = torch.randn(16)
        return x, x[:4].abs().sum()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.aux = nn.Linear(16, 64), nn.Linear(64, 1), nn.Linear(64, 16)

    def forward(self, x):
        mixed = torch.is_autocast_cpu_enabled()
        hidden = F.dropout(F.relu(self.body(x)), 0.1, self.training)
        return self.head(hidden).squeeze(-1), self.aux(hidden), mixed

if __name__ == "__main__":
    {seeding}
    net = Net()
    optimizer = torch.optim.{optimizer}
    loader = DataLoader(Noisy(), batch_size=32, shuffle=True)
    for epoch in range(1000):
        for x, y in loader:
            guess, again, mixed = net(x)
            main, aux = F.mse_loss(guess.float(), y), F.mse_loss(again.float(), x)
            loss = {loss}
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
ADAM, SGD = "Adam(net.parameters(), lr=3e-3)", "SGD(net.parameters(), lr=0.02)"
SEEDED = "torch.manual_seed(0)"
GOOD = "main + aux"
PROFILE = {"precision": "bf16", "workers": "1"}


@pytest.fixture
def gates(script, tmp_path):
    """Gates over real children of one script: the verdict on bf16 beside workers, or on another profile."""
    with ExitStack() as stack:

        def of(loss=GOOD, optimizer=ADAM, seeding=SEEDED):
            path = script(SCRIPT.format(loss=loss, optimizer=optimizer, seeding=seeding))
            line, environ = [sys.executable, str(path)], {**os.environ, **QUIET}
            trials = stack.enter_context(Trials(line, environ, Unprotected(), SystemClock(), tmp_path / "log"))
            drawing = {name for name, kind in trials.look()["numerics"].items() if kind == "resampled"}

            def judged(profile=PROFILE):
                found = Gate(trials.curve, lambda _: None, drawing)
                return found, found.repaired(profile)

            return judged

        yield of


def test_rounding_alone_passes_and_half_the_loss_is_refused(gates, tmp_path, monkeypatch):
    """One script, whose branch for mixed precision is right at first: the plain trainings of both verdicts are the same."""
    monkeypatch.chdir(tmp_path)
    scale = tmp_path / "scale"
    scale.write_text("1.0")
    judged = gates("(main + aux) * (float(open('scale').read()) if mixed else 1.0)")
    passes_beside_workers_that_draw_otherwise(*judged())
    scale.write_text("0.5")
    refused(*judged({**PROFILE, "gc_policy": "on"}), {"workers": "1", "gc_policy": "on"}, "other-loss")


def passes_beside_workers_that_draw_otherwise(found, told):
    """The dataset draws its data: with a worker it draws others, which no loss and no gradient may be blamed for."""
    knobs, parity, taken = told
    assert parity.verdict is Verdict.PASS, parity
    assert (knobs, taken) == ({"precision": "bf16", "workers": "1"}, [])
    assert parity.batch.ok is True, parity.batch
    assert parity.batch.pairs == 3
    assert 0 < abs(parity.batch.loss - 1) < 0.01, "the same numbers: bf16 was never on"
    assert parity.batch.cosine > 0.98
    for plain, tuned in found.pairs:
        assert plain.begun == tuned.begun == plain.looks[0].begun
        assert plain.losses[: plain.begun] == tuned.losses[: tuned.begun]
        assert plain.losses == pytest.approx(tuned.losses, rel=0.05), "other data"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("loss", "optimizer", "code"),
    [
        pytest.param("main if mixed else main + aux", ADAM, "gradient-missing", id="a dropped term"),
        pytest.param("(main + 0.2 * aux) if mixed else main + aux", ADAM, "other-loss", id="a faded term"),
        pytest.param(
            "(main + aux - (main + aux).detach() * 0.5) * 2 if mixed else main + aux",
            SGD,
            "other-length",
            id="twice the gradient",
        ),
        pytest.param(
            "(2 * main.detach() - main + aux) if mixed else main + aux",
            ADAM,
            "other-direction",
            id="a term upside down",
        ),
    ],
)
def test_what_learns_something_else_is_refused(loss, optimizer, code, gates):
    refused(*gates(loss, optimizer)(), {"workers": "1"}, code)


def refused(found, told, left, code):
    knobs, parity, taken = told
    assert taken == ["precision"]
    assert knobs == left
    assert (parity.verdict, parity.code) == (Verdict.PASS, "same-numbers"), "what is left of it changes no rounding"
    assert (found.failed.verdict, found.failed.code, found.failed.batch.code) == (Verdict.FAIL, code, code), found.failed
    drawn = ElementTree.fromstring(report.picture(found.pairs, found.failed, Words("zh")))
    assert len([one for one in drawn.iter() if one.tag.endswith("polyline")]) == 8
    said = report.sentences(parity, found.failed, taken, [], Words("en"))
    assert said[0].startswith("Removed from the profile: precision. With this the script does not learn as well: on one batch")
    assert report.sentences(found.failed, found.failed, [], [], Words("en"))[0].startswith("Parity check: failed")


@pytest.mark.thorough
def test_dropout_that_is_compiled_draws_other_masks_and_passes(gates):
    _, (knobs, parity, _) = gates()({"compile": "default"})
    assert (knobs, parity.verdict) == ({"compile": "default"}, Verdict.PASS), parity
    assert parity.batch.ok is True


@pytest.mark.thorough  # a minute; tests/tune/test_curves.py has the judging
def test_a_script_that_does_not_repeat_itself_is_judged_by_its_curves(gates):
    _, (_, parity, _) = gates(seeding="torch.seed()")()
    assert (parity.batch.ok, parity.batch.code) == (None, "not-repeatable")
    assert parity.verdict is not Verdict.FAIL
