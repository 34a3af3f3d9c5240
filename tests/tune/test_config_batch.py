"""A batch size that stands in a configuration: children for a size get the same file with that value, and none is left behind.

There is no card here. Its end is imitated at one place: the script's model raises torch's own OutOfMemoryError for
batches above CARD, as an allocator would.
"""

import hashlib
import io
import json
import sys

import pytest

pytest.importorskip("torch")
yaml = pytest.importorskip("yaml")

from flatout.base.errors import UsageError
from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.cli import batch_flags, tune
from flatout.cli.config_task import ConfigTask
from flatout.launch.own_argument import Argument
from flatout.launch.protection import Unprotected
from flatout.tune.batch.command_line import BatchLine, RateRule, Road, batch_line, written
from flatout.tune.config.measure import sized
from flatout.tune.search.questions_and_answers import BatchGoal

SCRIPT = """
import argparse
import torch, yaml
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CARD = 100

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
    def forward(self, x):
        if len(x) > CARD:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.layer(x)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    with open(parser.parse_args().config, encoding="utf-8") as file:
        cfg = yaml.safe_load(file)
    torch.manual_seed(0)
    net = Net()
    assert isinstance(cfg["optimizer"]["lr"], float), cfg
    optimizer = torch.optim.SGD(net.parameters(), lr=cfg["optimizer"]["lr"])
    data = TensorDataset(torch.randn(1000, 8), torch.randint(0, 3, (1000,)))
    for epoch in range(10000):
        for x, y in DataLoader(data, batch_size=cfg["train"]["batch_size"], shuffle=True):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
CONFIG = "# mine\ntrain:\n  batch_size: 16   # per step\noptimizer:\n  lr: 0.004  # 学习率\nvalidation:\n  batch_size: 7\n"


@pytest.fixture
def task_of(tmp_path, script, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x_config.yaml").write_text(CONFIG, encoding="utf-8")
    path = script(SCRIPT, "main.py")

    def make(*words, text=CONFIG, **more):
        (tmp_path / "x_config.yaml").write_text(text, encoding="utf-8")
        asked = {"config": "x_config.yaml", "output": None, "force": False, "key": (), "no_insert": False, "preset": None,
                 "card": None, "explore": (), "python": sys.executable, "no_sandbox": True, "no_parity": True, "as_json": False,
                 "dry_run": False, "gpu_memory_fraction": None, **more}  # fmt: skip
        return ConfigTask([str(path), "--config", "{config}", *words], asked, tune.Screen(io.StringIO(), Words("en")))

    return make


def wished(task, rule=RateRule.KEEP, batch_arg=None):
    wish = batch_flags.Wanted(goal=BatchGoal.FIT, rule=rule, batch_arg=batch_arg, rate_arg=None)
    with Unprotected() as sandbox:
        batch_flags.look_for_arguments(wish, [sys.executable, *task.command()], sandbox, {}, task)
    return batch_line(wish.batch, wish.rate, wish.rule, 16)


def test_a_size_is_the_same_file_with_that_value_and_its_learning_rate(task_of, tmp_path):
    task = task_of()
    line = wished(task, RateRule.LINEAR)
    assert (line.road, line.argument.flag, line.own, line.rate.flag) == (
        Road.CONFIGURATION, "train.batch_size", 16, "optimizer.lr",
    )  # fmt: skip
    assert line.arguments(64) == {}, "nothing is said on the command line"
    with task:
        command = task.at_size(line, 64)
        assert command == task.at_size(line, 64), "one file for each size"
        (place,) = (tmp_path / word for word in command if word.endswith(".yaml"))
        assert place.parent == tmp_path, "scripts read paths relative to their configuration"
        assert place.read_text(encoding="utf-8") == CONFIG.replace("size: 16 ", "size: 64 ").replace("0.004", "0.016")
    assert [one.name for one in tmp_path.glob("*.yaml")] + [one.name for one in tmp_path.glob(".*.yaml")] == ["x_config.yaml"]


def test_without_a_rule_the_learning_rate_is_as_it_was(task_of):
    line = wished(task_of())
    assert [wish.key for wish in sized(line, 32)] == ["batch_size"]


def test_whose_batch_it_is(task_of):
    """An argument on the command line is heard before the file, and so is one that was named."""
    given = task_of("--batch-size", "8")
    assert isinstance(given.as_argument("batch_size"), Argument)
    assert wished(given, batch_arg="--bs").argument.flag == "--bs"
    for text in ("lr: 1\n", "batch_size: many\n", "a:\n  batch_size: 2\nb:\n  batch_size: 3\n"):
        task = task_of(text=text)
        assert isinstance(task.as_argument("batch_size"), Missing), text
    with pytest.raises(UsageError) as wrong:
        wished(task_of(text="batch_size: 16\n"), RateRule.SQRT)
    assert wrong.value.key == "config-error.no-rate"


@pytest.mark.parametrize(
    ("rate", "text"), [(4e-5, "4.0e-05"), (1.5e-5, "1.5e-05"), (0.001, "0.001"), (2.0, "2"), (1e-4, "0.0001")]
)
def test_a_learning_rate_is_a_number_to_every_reader(rate, text):
    assert written(rate) == text
    assert isinstance(yaml.safe_load(written(rate)), float | int)
    line = BatchLine(
        argument=Argument(flag="b", names=("b",), value="1"), own=1, rule=RateRule.LINEAR,
        rate=Argument(flag="lr", names=("lr",), value=str(rate)),
    )  # fmt: skip
    assert float(line.rate_at(3)) == pytest.approx(3 * rate)


@pytest.mark.thorough
@pytest.mark.alone
def test_the_largest_batch_through_the_configuration(flatout, script, tmp_path):
    path = script(SCRIPT, "main.py")
    source = tmp_path / "x_config.yaml"
    source.write_text(CONFIG, encoding="utf-8")
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    ended = flatout(
        "tune", "--config", "x_config.yaml", "--batch", "fit", "--lr-rule", "linear", "--only", "batch_size", "--no-parity",
        "--budget", "90s", "--json", "--", sys.executable, path, "--config", "{config}", timeout=285,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    record = json.loads(ended.stdout)
    story = record["search"]["batch"]
    assert (story["road"], story["flag"], story["own"]) == ("configuration", "train.batch_size", 16)
    assert 16 < story["size"] <= 100
    assert story["proved"]["size"] == story["size"]
    assert record["search"]["spent_s"] <= 1.15 * 90
    target = tmp_path / record["target"]
    rate = 0.004 * story["size"] / 16
    told = yaml.safe_load(target.read_text(encoding="utf-8"))
    assert told["train"]["batch_size"] == story["size"]
    assert told["optimizer"]["lr"] == pytest.approx(rate)
    assert told["validation"]["batch_size"] == 7
    assert "# per step" in target.read_text(encoding="utf-8")
    assert "linear" in ended.stderr, "the rule is named"
    assert record["profile"] == {}
    assert not (tmp_path / "flatout.toml").exists()
    assert sorted(one.name for one in tmp_path.glob("*.yaml")) == ["x_config.yaml", "x_gpu_optimized.yaml"]
    assert not list(tmp_path.glob(".x_config*")), "a temporary file was left"
    assert hashlib.sha256(source.read_bytes()).hexdigest() == before
