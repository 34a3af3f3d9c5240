"""The parity gate on a real card: profiles that searches found pass, and one that drops a term does not. `pytest -m gpu -s`.

Figures are printed, so that a sitting can be kept.
"""

import os
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from flatout.base.clock import SystemClock
from flatout.launch.protection import Unprotected
from flatout.measure.parity import Verdict
from flatout.tune.confirmation.parity_runs import Gate
from flatout.tune.execution.trial_runner import Trials

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROFILES = {
    "restoration": {"precision": "bf16", "channels_last": "on", "fused_optimizer": "on", "compile": "reduce-overhead"},
    "behavior": {"precision": "bf16", "fused_optimizer": "on", "compile": "graphs"},
    "vision": {"tf32": "on", "precision": "bf16", "fused_optimizer": "on", "compile": "reduce-overhead"},
    "gpt": {"tf32": "on", "precision": "bf16", "fused_optimizer": "on", "compile": "reduce-overhead"},
}
FORGETFUL = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.ModuleDict({"body": nn.Linear(64, 256), "head": nn.Linear(256, 1), "aux": nn.Linear(256, 64)}).cuda()
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = net

        def forward(self, x):
            mixed = torch.is_autocast_enabled()
            hidden = F.dropout(F.relu(self.parts["body"](x)), 0.1)
            return self.parts["head"](hidden).squeeze(-1), self.parts["aux"](hidden), mixed
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(2048, 64)
    for epoch in range(1000):
        for (batch,) in DataLoader(TensorDataset(x), batch_size=64, shuffle=True):
            batch = batch.cuda()
            guess, again, mixed = model(batch)
            main, aux = F.mse_loss(guess.float(), batch[:, 0]), F.mse_loss(again.float(), batch)
            loss = main if mixed and FORGETS else main + aux
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


def verdict(folder, script, words, knobs):
    command = [sys.executable, str(script), *words]
    with Trials(command, os.environ, Unprotected(), SystemClock(), folder / "log") as trials:
        found = Gate(trials.curve, lambda _: None).check(knobs)
        print(f"\n{script.name} {knobs}: {found}", file=sys.stderr)
        return found


@pytest.mark.parametrize("name", PROFILES)
def test_what_a_search_found_learns_the_same(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--steps", "1000000"] if name == "gpt" else ["--epochs", "1000"]
    found = verdict(tmp_path, EXAMPLES / f"{name}.py", words, PROFILES[name])
    assert found.verdict is Verdict.PASS, found
    assert found.batch.ok is True, found


@pytest.mark.parametrize(("forgets", "passes"), [("False", True), ("True", False)])
def test_a_term_that_goes_missing_under_autocast(forgets, passes, tmp_path, monkeypatch):
    """With dropout, whose masks change with the format on a card."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(FORGETFUL.replace("FORGETS", forgets), encoding="ascii")
    found = verdict(tmp_path, script, [], {"precision": "bf16"})
    assert found.batch.ok is passes, found
    assert (found.verdict is Verdict.PASS) is passes, found
