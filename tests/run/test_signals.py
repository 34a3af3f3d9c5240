"""Real processes, real signals: whatever ends a training, it ends as it would alone, and what was seen of it is kept."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from _flatout_agent.wire import parse_journal
from flatout.measure.process_journals import attribute

pytest.importorskip("torch")

# Trains for ever, and says when it has begun: windows are written twice a second.
TRAINING = """
import signal, sys, time, torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0); torch.set_num_threads(1)
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
{before}
def train(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for (x,) in DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=4):
            net(x).sum().backward(); opt.step(); opt.zero_grad(); time.sleep(0.005)
train({seconds})
print("trained", flush=True)
{after}
"""


@pytest.fixture
def started(tmp_path):
    """Starts `flatout run` in a session of its own and waits for the script's first word."""
    processes = []

    def start(before="", after="train(60)", options=("-q",), ignored=(), seconds=1.2):
        path = tmp_path / "train.py"
        path.write_text(TRAINING.format(before=before, after=after, seconds=seconds))
        process = subprocess.Popen(
            [sys.executable, "-m", "flatout", "run", *options, str(path)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=lambda: [signal.signal(number, signal.SIG_IGN) for number in ignored],
            env={**os.environ, "OMP_NUM_THREADS": "1", "FLATOUT_LANG": "en"},
        )
        processes.append(process)
        assert process.stdout.readline() == b"trained\n", process.stderr.read()
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def child_of(process) -> int:
    (pid,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    return pid


def gone(pid, within=20.0) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def run_folder(tmp_path) -> Path:
    (folder,) = (tmp_path / ".flatout" / "runs").iterdir()
    return folder


def summary_of(tmp_path) -> dict:
    return json.loads((run_folder(tmp_path) / "summary.json").read_text())


def test_sigterm_reaches_the_script_and_the_summary_is_written(started, tmp_path):
    process = started()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    summary = summary_of(tmp_path)
    assert (summary["signal"], summary["exit_code"]) == (15, 143)
    assert summary["steps"] >= 20
    assert sum(summary["phases"].values()) == pytest.approx(summary["wall_s"])


@pytest.mark.thorough
def test_a_script_that_saves_on_sigterm_may_finish(started, tmp_path):
    process = started("signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), print('saved', flush=True), sys.exit(0)))")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == (b"saved\n", 0)
    assert summary_of(tmp_path)["exit_code"] == 0


@pytest.mark.thorough
def test_sigterm_to_the_whole_group_as_schedulers_send_it(started, tmp_path):
    """The script gets it twice, once from the scheduler and once from us; the record is kept all the same."""
    process = started()
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    assert summary_of(tmp_path)["signal"] == 15


def test_a_script_that_swallows_sigint_trains_on(started, tmp_path):
    process = started(
        "signal.signal(signal.SIGINT, lambda *_: print('no', flush=True))", "train(1.5); print('end', flush=True)"
    )
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == (b"no\nend\n", 0)
    assert summary_of(tmp_path)["exit_code"] == 0


@pytest.mark.parametrize("seconds", [1.2, pytest.param(20, marks=pytest.mark.thorough)])
def test_what_whoever_started_us_ignores_stays_ignored(seconds, started, tmp_path):
    """`nohup flatout run`, or a background job of a script: the closed terminal and Ctrl-C end neither us nor the training."""
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    names = "print([signal.getsignal(number).name for number in (1, 2, 3)])"
    process = started(after="train(1.5); " + names, ignored=ignored, seconds=seconds)
    for number in ignored:
        os.killpg(process.pid, number)
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == (b"['SIG_IGN', 'SIG_IGN', 'SIG_IGN']\n", 0)
    assert summary_of(tmp_path)["exit_code"] == 0


@pytest.mark.parametrize("seconds", [1.2, pytest.param(20, marks=pytest.mark.thorough)])
def test_an_ignored_signal_that_the_script_asks_for_reaches_it(seconds, started, tmp_path):
    """Sent to the one process that is known: us."""
    before = "signal.signal(signal.SIGHUP, lambda *_: sys.exit(7))"
    process = started(before, ignored=(signal.SIGHUP,), seconds=seconds)
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 7


def test_a_signal_while_the_summary_is_written_does_not_cost_it(started, tmp_path):
    """The script is killed; at the same moment comes a SIGTERM that finds only us."""
    process = started()
    os.kill(child_of(process), signal.SIGKILL)
    for _ in range(40):
        if (run_folder(tmp_path) / "summary.json").exists():
            break
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) in (-signal.SIGKILL, -signal.SIGTERM)
    assert summary_of(tmp_path)["signal"] == 9


# Leads the session like a shell, and outlives us: a terminal whose leader dies loses what nobody has read yet.
SHELL = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, lambda *_: None)
print("status", subprocess.run(sys.argv[1:]).returncode, flush=True)
time.sleep(2)
"""


@pytest.mark.parametrize("gap", [0.05, *(pytest.param(gap, marks=pytest.mark.thorough) for gap in (0.0, 0.3))])
def test_control_c_twice_on_a_terminal(gap, tmp_path):
    """An impatient user: the script dies of KeyboardInterrupt, the table is still shown, the shell sees SIGINT."""
    path = tmp_path / "train.py"
    path.write_text(TRAINING.format(before="", seconds=1.2, after="try:\n    train(60)\nfinally:\n    time.sleep(0.2)"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.environ["FLATOUT_LANG"] = "en"
        os.execv(sys.executable, [sys.executable, "-c", SHELL, sys.executable, "-m", "flatout", "run", str(path)])
    seen = read_until(terminal, b"trained")
    assert b"trained" in seen
    os.write(terminal, b"\x03")
    time.sleep(gap)
    os.write(terminal, b"\x03")
    seen = read_until(terminal, b"status -")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)
    assert b"Record:" in seen
    assert b"status -" in seen
    assert b"flatout/cli" not in seen  # no traceback of ours
    assert summary_of(tmp_path)["steps"] >= 20
    assert summary_of(tmp_path)["signal"] == signal.SIGINT


def read_until(terminal, mark, limit=60.0) -> bytes:
    seen, end = b"", time.monotonic() + limit
    while mark not in seen and time.monotonic() < end:
        try:
            seen += os.read(terminal, 4096)
        except OSError:
            break
    return seen


@pytest.mark.thorough
def test_a_terminal_that_closes_leaves_the_record(started, tmp_path):
    """SIGHUP, and nowhere left to print to."""
    process = started(options=())
    process.stderr.close()
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == -signal.SIGHUP
    process.stderr = None
    assert summary_of(tmp_path)["signal"] == 1


def test_when_we_are_killed_the_journals_tell_the_run(started, tmp_path):
    """SIGKILL of the front alone: the script trains on as under a shell that died, and its journal can be read."""
    process = started(after="train(1.5)")
    script = child_of(process)
    process.kill()
    assert process.wait(10) == -signal.SIGKILL
    assert gone(script)
    assert not (run_folder(tmp_path) / "summary.json").exists()
    (journal,) = run_folder(tmp_path).glob("journal-*.jsonl")
    lines = parse_journal(journal.read_text())
    assert len(lines) == len(journal.read_text().splitlines())
    assert lines[0]["kind"] == "process"
    assert lines[-1]["kind"] == "end"
    told = attribute([lines], 10.0)
    assert told.steps >= 20
    assert sum(told.phases.values()) == pytest.approx(10.0)


def test_no_process_is_left_behind(started):
    process = started()
    script = child_of(process)
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    assert gone(script)
