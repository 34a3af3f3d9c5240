"""What a written configuration learns, in real children: the script's own switch is not the knob that the trials proved.

`use_amp` puts autocast on, as people write it; in the bad script it also takes the loss for a hundredth of what it is.
"""

import contextlib
import io
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("yaml")

from flatout.base.words import Words
from flatout.cli import tune
from flatout.cli.config_task import ConfigTask
from flatout.measure.parity import Verdict
from flatout.tune.config import changed_values
from flatout.tune.config.wishes import How, Verification, Wish

SCRIPT = """
import argparse
import torch, yaml
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    with open(parser.parse_args().config, encoding="utf-8") as file:
        cfg = yaml.safe_load(file)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    x = torch.randn(512, 8)
    data = TensorDataset(x, x[:, :1] * 2 - x[:, 1:2])
    scale = {scale} if cfg["use_amp"] else 1.0
    for epoch in range(1000):
        for a, b in DataLoader(data, batch_size=32, shuffle=True):
            with torch.autocast("cpu", torch.bfloat16, enabled=cfg["use_amp"]):
                loss = nn.functional.mse_loss(net(a).float(), b)
            optimizer.zero_grad()
            for parameter in net.parameters():
                parameter.grad = None
            loss.backward()
            for parameter in net.parameters():
                parameter.grad *= scale
            optimizer.step()
"""
CONFIG = "# mine\nuse_amp: false  # later\n"


@pytest.fixture
def learned(tmp_path, script, monkeypatch):
    """The verdict on the file with `use_amp` on, against the file as it is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "x_config.yaml").write_text(CONFIG, encoding="utf-8")

    def verdict(scale):
        path = script(SCRIPT.replace("{scale}", str(scale)), "main.py")
        asked = {"config": "x_config.yaml", "output": None, "force": False, "key": (), "no_insert": False, "preset": None,
                 "card": None, "explore": (), "python": sys.executable, "no_sandbox": True, "no_parity": False,
                 "as_json": False, "dry_run": False, "gpu_memory_fraction": None}  # fmt: skip
        task = ConfigTask([str(path), "--config", "{config}"], asked, tune.Screen(io.StringIO(), Words("en")))
        wish = Wish(key="use_amp", value="bf16", code="kept", how=How.MEASURED)
        applied = changed_values.apply(task.configuration, [wish], task.own, lambda key: None)
        assert applied.text == CONFIG.replace("false", "true")
        with contextlib.ExitStack() as stack:
            new = stack.enter_context(task._beside(tmp_path, applied.text))
            arm_of = stack.enter_context(task._arms(tmp_path))
            old = arm_of(task.source)
            # As the search has left it: its own gate has trained the plain script, and kept what it learned.
            for seed in (0, 1000, 2000):
                assert old.curve({}, 60, seed)
            found = Verification(done=True)
            task._compare_learning(arm_of(task.source), arm_of(new), found, tmp_path)
        assert (tmp_path / "parity.svg").stat().st_size > 1000
        return found.parity

    return verdict


@pytest.mark.thorough
@pytest.mark.parametrize(("scale", "verdict"), [(1.0, Verdict.PASS), (0.01, Verdict.FAIL)])
def test_a_file_is_judged_by_what_it_learns_itself(scale, verdict, learned):
    parity = learned(scale)
    assert parity.verdict is verdict, parity
    assert (parity.pairs, parity.steps) == (3, 60)
    assert parity.difference != 0.0, "the same numbers: the new file was never trained"
