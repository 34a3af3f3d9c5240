"""Knobs on a real script, end to end: from the flag or the profile to the agent, and back to the table."""

import pytest

pytest.importorskip("torch")

TRAIN = """
import os, sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(2)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(320, 16), torch.randn(320, 1)), batch_size=16, shuffle=True)
slow = os.environ.get("SLOW_WITH_THREADS")
for epoch in range(8 if slow else 4):
    for x, y in loader:
        if os.environ.get("FRAGILE") and torch.get_num_threads() == 1:
            raise RuntimeError("one thread is not enough")
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
        if slow:
            time.sleep(0.012 if torch.get_num_threads() == int(slow) else 0.003)
print("threads", torch.get_num_threads())
"""


def test_flags_are_put_on_and_proved(flatout, script):
    ended = flatout("run", "--knob", "cpu_threads=1", "--knob", "gc_policy=on", "--pin-memory", script(TRAIN))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == b"threads 1\n"
    said = " ".join(ended.stderr.split())
    assert "cpu_threads=1 applied (1 threads; results differ by rounding" in said
    assert "gc_policy=on applied (" in said
    assert "pin_memory=on not applied: the model is not on a CUDA device" in said
    assert [use["came"] for use in ended.summary["knobs"]] == ["refused", "applied", "applied"]


@pytest.mark.thorough
@pytest.mark.parametrize(("slow", "came", "threads"), [("2", "applied", b"threads 1\n"), ("1", "taken-back", b"threads 2\n")])
def test_a_profile_is_put_on_too_and_taken_back_where_it_is_slower(slow, came, threads, flatout, script, tmp_path):
    """Four times faster or slower by the number of threads, so that the machine has no say in it."""
    (tmp_path / "flatout.toml").write_text("[knobs]\ncpu_threads = 1\n[fingerprint]\ncard = 'CPU'\n")
    ended = flatout("run", script(TRAIN), env={"SLOW_WITH_THREADS": slow})
    assert ended.returncode == 0, ended.stderr
    (use,) = ended.summary["knobs"]
    assert (use["came"], ended.stdout) == (came, threads)
    assert use["source"] == "profile"


def test_a_profile_for_batches_of_another_shape(flatout, script, tmp_path):
    """Only the agent sees them: the profile's knobs stay off, and what the command line asks for is put on all the same."""
    profile = '[knobs]\ncpu_threads = 1\ncudnn_benchmark = true\n[fingerprint]\nshapes = ["64x16", "64x1"]\n'
    (tmp_path / "flatout.toml").write_text(profile)
    ended = flatout("run", "--knob", "gc_policy=on", script(TRAIN))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == b"threads 2\n"
    uses = {use["name"]: use for use in ended.summary["knobs"]}
    assert [(uses[name]["came"], uses[name]["code"]) for name in ("cpu_threads", "cudnn_benchmark")] == [
        ("refused", "other-shapes"),
        ("refused", "other-shapes"),
    ]
    assert uses["gc_policy"]["came"] in ("applied", "taken-back")
    assert "measured with batches of shape 64x16, 64x1, but here they are 16x16, 16x1" in " ".join(ended.stderr.split())


@pytest.mark.thorough  # eight runs; tests/knobs/test_bisect.py has the halving
def test_the_guilty_knob_of_a_real_crash(flatout, script):
    flags = ["--knob", "cpu_threads=1", "--knob", "gc_policy=on", "--knob", "workers=1", "--pin-memory"]
    ended = flatout("run", "-q", "--bisect", *flags, script(TRAIN), env={"FRAGILE": "1"})
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("flatout: the script fails with cpu_threads=1 and works without (")
