"""Another batch size in real children: put together in a running one, asked for by the script's argument, and too large.

There is no card here. Its end is imitated at one place: the script's model raises torch's own OutOfMemoryError for
batches above CARD, as an allocator would.
"""

import json
import os
import sys

import pytest

torch = pytest.importorskip("torch")

from processes import patient

from conftest import QUIET
from flatout.base.clock import SystemClock
from flatout.base.errors import UsageError
from flatout.knobs import profile_file
from flatout.launch import own_batch
from flatout.launch.own_argument import Argument
from flatout.launch.protection import Unprotected
from flatout.launch.settings import Asked, Flag, decide
from flatout.tune.batch.command_line import BatchLine
from flatout.tune.execution.trial_runner import Trials
from flatout.tune.search.questions_and_answers import Mode, OutcomeState, Segment, Status

TRAIN = """
import argparse
import torch
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
    parser.add_argument("-b", "--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=1000)
    args = parser.parse_args()
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr)
    x = torch.randn(1000, 8)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    data = TensorDataset(x, y)
    for epoch in range(args.epochs):
        for a, b in DataLoader(data, batch_size=args.batch_size, shuffle=True):
            loss = nn.functional.cross_entropy(net(a), b)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        with torch.no_grad():
            net(x[: 2 * args.batch_size])
"""

BATCH = Argument(flag="--batch-size", names=("--batch-size", "-b"), value="16")


@pytest.fixture
def trials(script, tmp_path):
    command = [sys.executable, str(script(TRAIN))]
    with Trials(command, {**os.environ, **QUIET}, Unprotected(), SystemClock(), tmp_path / "log") as one:
        one.batch = BatchLine(argument=BATCH, own=16)
        yield one


def segment(number, knobs=None, mode=Mode.REPLAY_HOST, restart=False, **more):
    settings = {"warm_steps": 2, "timed_s": 0.05, "timed_steps": 5, "stage": "batch", "trying": []}
    return Segment(id=number, knobs=knobs or {}, mode=mode, restart=restart, **{**settings, **more})


def test_sizes_in_a_running_child_by_the_argument_and_beyond_the_end(trials):
    ready = trials.look()
    assert (ready["batch_size"], ready["samples"]) == (16, 1000)
    assert ready["memory_limit"] > 2**28
    plain = trials.carry_out(segment(1))
    assert (plain.status, plain.samples / plain.steps) == (Status.OK, 16)
    larger = trials.carry_out(segment(2, batch=90))
    assert (larger.status, larger.samples / larger.steps) == (Status.OK, 90)
    assert isinstance(larger.memory_peak, int)
    again = trials.carry_out(segment(3))
    assert again.samples / again.steps == 16, "afterwards as before"
    assert trials.carry_out(segment(4, batch=101)).status is Status.OOM
    # The real loop, by the script's own argument: its validation has twice the batch, and meets the end of the card.
    proof = segment(5, {"batch_size": "40"}, Mode.REAL, through_epoch=True)
    real = trials.carry_out(proof)
    assert real.status is Status.OK
    assert real.outcomes["batch_size"].state is OutcomeState.APPLIED
    assert real.outcomes["batch_size"].details == {"seen": 40, "plain": 16}
    assert real.epoch_ended
    too_much = trials.carry_out(segment(6, {"batch_size": "60"}, Mode.REAL, through_epoch=True))
    assert too_much.status is Status.OOM


LONG = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    net = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(400_000, 8))
    validation = DataLoader(TensorDataset(torch.randn(100_000, 8)), batch_size=4)
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers={workers}, persistent_workers={workers} > 0)
    for epoch in range(3):
        for (x,) in loader:
            loss = net(x).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        print("seen", sum(1 for (x,) in validation if net(x) is not None), flush=True)
"""


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.thorough), 2])
def test_an_epoch_of_minutes_is_ended_for_the_proof_and_its_validation_is_gone_through(workers, script, tmp_path):
    """A hundred thousand steps an epoch: waiting for its end would take longer than any budget."""
    command = [sys.executable, str(script(LONG.format(workers=workers)))]
    with Trials(command, {**os.environ, **QUIET}, Unprotected(), SystemClock(), tmp_path / "log") as trials:
        trials.look()
        proof = trials.carry_out(segment(1, mode=Mode.REAL, through_epoch=True))
        assert (proof.status, proof.epoch_ended) == (Status.OK, True)
        assert proof.steps >= 5
        assert proof.took_s < 20
        again = trials.carry_out(segment(2, mode=Mode.REAL))
        assert again.status is Status.OK, "the next epoch is as it was"
        assert not again.epoch_ended
    assert (tmp_path / "log").read_text(encoding="utf-8").split() == ["seen", "8"]


def test_a_segment_that_may_take_so_long_and_no_longer(trials):
    trials.look()
    brief = trials.carry_out(segment(1, mode=Mode.REAL, timed_s=60.0, timed_steps=10**6, limit_s=0.5))
    assert brief.status is Status.OK
    assert brief.steps >= 2
    assert brief.took_s < 10
    late = trials.carry_out(segment(2, {"batch_size": "40"}, Mode.REAL, restart=True, timed_s=60.0, give_up_s=0.2))
    assert (late.status, late.fault) == (Status.LATE, False)
    assert late.took_s < 10
    assert trials.carry_out(segment(3)).status is Status.OK, "a new child, as after any end"


SLOW_WHEN_PLAIN = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(8, 1)

    def forward(self, x):
        if not torch.is_autocast_cpu_enabled():
            time.sleep(0.25)
        return self.line(x).float()

if __name__ == "__main__":
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x = torch.randn(512, 8)
    for epoch in range(100000):
        for a, b in DataLoader(TensorDataset(x, x[:, :1]), batch_size=16):
            loss = nn.functional.mse_loss(net(a), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


def test_a_race_is_run_under_the_knobs_and_not_in_the_plain_steps_before_them(script, tmp_path):
    """Seen on a card: three steps in float32 took a large batch most of its three seconds, and the small one none of them."""
    command = [sys.executable, str(script(SLOW_WHEN_PLAIN))]
    with Trials(command, {**os.environ, **QUIET}, Unprotected(), SystemClock(), tmp_path / "log") as trials:
        curve = trials.timed_curve({"precision": "bf16"}, 100_000, 0, 0.5)
    assert 0.4 <= curve.seconds[-1] <= 0.8
    assert len(curve.losses) > 20
    steps = [later - earlier for earlier, later in zip(curve.seconds, curve.seconds[1:], strict=False)]
    assert max(steps) < 0.25, "a plain step"


@pytest.mark.thorough
def test_what_is_compiled_is_warm_before_a_segment_is_cut_short(trials):
    """Seen on a card: compiling took all of the time that the segment might take, and two cold steps were what was timed."""
    trials.look()
    built = trials.carry_out(
        segment(1, {"compile": "default"}, Mode.REAL, warm_steps=6, timed_s=0.2, timed_steps=12, limit_s=2.0)
    )
    assert built.status is Status.OK
    assert built.outcomes["compile"].state == "applied", built.outcomes
    assert built.took_s > 2.0, "nothing was compiled: this shows nothing"
    assert built.steps >= 12


@pytest.mark.thorough
def test_a_curve_over_seconds_and_an_argument_without_effect(trials):
    curve = trials.timed_curve({"batch_size": "40"}, 4000, 0, 0.3)
    assert curve.seconds == sorted(curve.seconds)
    assert 0.25 <= curve.seconds[-1] <= 2.0
    assert len(curve.losses) == len(curve.seconds) > 20
    assert curve.losses[-1] < curve.losses[0]
    assert trials.timed_curve({"batch_size": "64"}, 4000, 0, 0.3) is None, "its validation does not fit"
    # An argument that the script reads and does not use for its batches: no effect, no verdict.
    trials.batch = BatchLine(argument=Argument(flag="--epochs", names=("--epochs",), value="1000"), own=16)
    trials.look()
    still = trials.carry_out(segment(1, {"batch_size": "500"}, Mode.REAL))
    assert still.outcomes["batch_size"].code == "other-batch-seen"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--batch", "huge"], "huge"),
        (["--batch", "fit", "--lr-rule", "cubic"], "cubic"),
        (["--lr-rule", "linear"], "--batch"),
        (["--batch", "fit", "--no-sandbox"], "--batch-arg"),
        (["--batch", "grow", "--batch-arg", "--bs", "--lr-rule", "sqrt", "--no-sandbox"], "--lr-arg"),
    ],
)
def test_wrong_usage_of_the_batch_is_one_sentence(arguments, words, flatout, script):
    ended = flatout("tune", *arguments, script("import torch\n"))
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


PROFILE = """
[knobs]
batch_size = 40

[arguments]
--batch-size = "40"
--lr = "0.2"

[provenance]
command = ["train.py", "-b", "16"]

[fingerprint]
card = "CPU"
"""


def test_run_starts_the_script_with_the_batch_of_a_profile_and_of_a_flag(flatout, script, tmp_path):
    path = script(TRAIN)
    (tmp_path / "flatout.toml").write_text(PROFILE, encoding="utf-8")
    ended = flatout("run", "--json", path, "--epochs", "1", "-b", "16")
    assert "--batch-size 40 --lr 0.2" in ended.stderr
    told = json.loads(ended.stderr[ended.stderr.index("\n{") :])
    assert (told["command"][-4:], told["samples"], told["steps"]) == (["-b", "40", "--lr", "0.2"], 1000, 25)
    (knob,) = told["knobs"]
    assert (knob["came"], knob["details"]) == ("applied", {"batch_size": 40})


def started(path, profile=None, flags=(), words=()):
    asked = Asked(flags=[Flag(f"--batch-size {value}", "batch_size", value) for value in flags])
    settings = decide(asked, None, profile, [])
    return own_batch.put_on([sys.executable, str(path), *words], settings, asked, {})[2:], settings


def test_whose_batch_counts(script):
    path = script(TRAIN)
    profile = profile_file.parse(PROFILE, "flatout.toml")
    assert started(path, profile)[0] == ["--batch-size", "40", "--lr", "0.2"]
    words, settings = started(path, profile, words=["-b", "50"])
    assert (words, settings.given, settings.arguments) == (["-b", "50"], "--batch-size 50", {})
    assert started(path, profile, flags=["20"], words=["-b", "50"])[0] == ["-b", "20"]
    assert started(path, flags=["20"])[0] == ["--batch-size", "20"]
    assert profile_file.parse(profile_file.text_of(profile), "again") == profile
    with pytest.raises(UsageError):
        started(script("import torch\n", "other.py"), flags=["20"])


def test_a_script_that_is_too_large_for_the_card_says_what_helps(flatout, script):
    ended = flatout("tune", "--budget", "20s", script(TRAIN.replace("default=16", "default=128")), timeout=100)
    assert ended.returncode == 1
    assert "runs out of memory with its own batch size" in ended.stderr
    assert "--batch fit" in ended.stderr


@pytest.mark.thorough
@pytest.mark.alone
@pytest.mark.parametrize(("validation", "smallest", "largest"), [("2 * ", 36, 50), ("", 80, 100)])
def test_a_batch_too_large_for_the_card_begins_at_a_smaller_one(validation, smallest, largest, flatout, script, tmp_path):
    """The learning rate of every size follows from the one that the script has for its own. At half of it the script starts;
    where its validation takes twice as much even that is too large, and less is proved."""
    path = script(TRAIN.replace("default=16", "default=128").replace("2 * args", f"{validation}args"))
    ended = flatout("tune", "--batch", "fit", "--lr-rule", "sqrt", "--only", "batch_size", "--budget", f"{patient(45)}s",
                    "--json", path, timeout=patient(280))  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "with batch size 64 it runs" in ended.stderr
    end = json.loads(ended.stdout)
    story = end["batch"]
    assert (story["own"], story["begun"]) == (128, 64)
    assert smallest <= story["size"] <= largest, ended.stderr
    assert end["profile"] == {"batch_size": str(story["size"])}
    assert story["proved"]["size"] == story["size"]
    rate = float(story["arguments"]["--lr"])
    assert rate == pytest.approx(0.1 * (story["size"] / 128) ** 0.5, rel=1e-3)
    assert story["command"][-4:] == ["--batch-size", str(story["size"]), "--lr", story["arguments"]["--lr"]]
    begun = flatout("run", "--json", path, "--epochs", "2", timeout=100)
    assert begun.returncode == 0, begun.stderr


@pytest.mark.thorough
def test_nothing_fits_and_what_is_not_known_is_said(flatout, script):
    """Down to one sample; and a learning rate that is to follow a batch that nobody knows."""
    ended = flatout("tune", "--batch", "fit", "--budget", "20s", script(TRAIN.replace("CARD = 100", "CARD = 0")), timeout=200)
    assert ended.returncode == 1
    assert "runs out of memory even with batch size 1" in ended.stderr
    unknown = script(TRAIN.replace("default=16", "").replace("args.batch_size,", "args.batch_size or 128,"), "unknown.py")
    ended = flatout("tune", "--batch", "fit", "--lr-rule", "linear", "--budget", "20s", unknown, timeout=100)
    assert ended.returncode == 2
    assert "The script has --batch-size, but its current batch size is unknown" in ended.stderr


@pytest.mark.thorough
@pytest.mark.alone
@pytest.mark.parametrize(("own", "validation", "kept"), [(60, "2 * args.batch_size", range(30, 51)), (128, "200", None)])
def test_what_dies_at_the_end_of_an_epoch_is_not_written(own, validation, kept, flatout, script):
    """A script's own batch that its validation cannot have; and one of which nothing holds."""
    path = script(TRAIN.replace("default=16", f"default={own}").replace("2 * args.batch_size", validation))
    ended = flatout("tune", "--batch", "fit", "--only", "batch_size", "--no-parity", "--budget", f"{patient(45)}s", "--json",
                    path, timeout=patient(280))  # fmt: skip
    end = json.loads(ended.stdout)
    assert end["batch"]["died"], ended.stderr
    if kept is None:
        assert (ended.returncode, end["ending"], end["profile"]) == (1, "no-batch-holds", {})
    else:
        assert ended.returncode == 0, ended.stderr
        assert int(end["profile"]["batch_size"]) in kept
        assert end["batch"]["proved"]["size"] == end["batch"]["size"]


@pytest.mark.thorough
@pytest.mark.alone
@pytest.mark.parametrize(("goal", "seconds"), [("fit", 45), ("grow", 80)])
def test_the_command_keeps_its_budget_and_answers_with_what_it_proved(goal, seconds, flatout, script, tmp_path):
    """Batches end at 100, those of its validation, which are twice as large, at 50: a probe in the loop cannot know that."""
    path, budget = script(TRAIN), patient(seconds)
    ended = flatout("tune", "--batch", goal, "--lr-rule", "sqrt", "--only", "batch_size", "--budget", f"{budget}s", "--json",
                    path, timeout=patient(280))  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    end = json.loads(ended.stdout)
    assert end["seconds"] - end["raced_s"] <= 1.15 * budget, ended.stderr
    assert end["raced_s"] <= 200
    story = end["batch"]
    if "batch_size" in end["profile"]:
        assert 16 < story["size"] <= 50
        assert story["proved"]["size"] == story["size"] == int(end["profile"]["batch_size"])
        assert story["epoch_seen"]
        assert story["arguments"] == {"--batch-size": str(story["size"]), "--lr": f"{0.1 * (story['size'] / 16) ** 0.5:.6g}"}
        assert "sqrt" in ended.stderr, "the rule is named"
    else:
        assert (story["size"], story["arguments"]) == (16, {})
    if goal == "fit":
        assert "batch_size" in end["profile"], ended.stderr
    elif "batch_size" in end["profile"]:
        assert story["time_to_loss"]["verdict"] in ("faster", "unknown")
