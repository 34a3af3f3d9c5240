"""A running training, read from its journal as it grows: the agent's own writer writes it here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from _flatout_agent import wire
from flatout.base.records import Missing
from flatout.watch import follow
from flatout.watch.follow import Follow, find_running, values_of
from flatout.watch.tail import Tail

SPAWNED = 1_760_000_000.0
SECOND = 1_000_000_000


class Agent:
    """Writes a journal as an agent does; the time is given."""

    def __init__(self, folder, pid=None, rank=None):
        self.pid = pid or os.getpid()
        self.journal = wire.Journal(str(folder), self.pid)
        self.phases = dict.fromkeys(wire.PHASES, 0)
        self.told = {"steps": 0, "samples": 0, "turns": 0, "backwards": 0, "script_outside": 0, "losses": []}
        self.journal.write(
            "process", wire=wire.WIRE_VERSION, pid=self.pid, python="3.11", executable="python", rank=rank, torch={}
        )

    def window(self, t, steps, *, phases=None, **more):
        for name, seconds in {"forward": 0.6, "backward": 0.3, "input": 0.1, **(phases or {})}.items():
            self.phases[name] += round(seconds * SECOND)
        self.told = {**self.told, "steps": steps, "samples": 8 * steps, "backwards": steps, **more}
        self.journal.write("window", t=round(t * SECOND), phases=list(self.phases.values()), **self.told)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / ".flatout" / "runs" / "20260101-000000-abcd"
    place.mkdir(parents=True)
    (place / "job.json").write_bytes(wire.job_text(wire.new_job(str(place), SPAWNED)))
    return place


def test_a_training_as_it_goes(folder, tmp_path):
    following = Follow(folder, tmp_path)
    assert (following.poll(SPAWNED).steps, following.poll(SPAWNED).running) == (0, True)
    agent = Agent(folder)
    agent.window(5, 0, phases={"startup": 4})
    for second in range(6, 17):
        agent.window(second, 10 * (second - 5), losses=[[8, 0.5 / second]], memory={"reserved": 5000, "retries": second // 16})
        training = following.poll(SPAWNED + second + 0.3)
    assert (training.steps, training.samples, training.pid) == (110, 880, os.getpid())
    assert training.step_s == pytest.approx(0.1)
    assert training.samples_per_s == pytest.approx(80)
    assert training.losses == [(8, 0.5 / 16)]
    assert training.phases["forward"] == pytest.approx(0.6 * 12)
    assert (training.epoch, training.left_s) == (0.0, Missing("length-unknown"))
    assert training.last_told == pytest.approx(SPAWNED + 16)
    spans = following.spans
    assert [span.steps for span in spans] == [0] + [10] * 11
    assert [round(span.end - SPAWNED) for span in spans] == list(range(5, 17))
    assert [span.retries for span in spans][-2:] == [0, 1]
    values = values_of(training, spans[-1])
    assert (values["share_input"], values["step_s"]) == (pytest.approx(0.1), pytest.approx(0.1))
    agent.journal.write("end", ended=SPAWNED + 20)
    assert following.poll(SPAWNED + 20).running, "how it ended stands in the summary, which comes next"
    assert following.poll(SPAWNED + 31).ended == "finished"  # whoever writes it is gone
    assert Follow(folder, tmp_path).poll(SPAWNED + 20).ended == "finished", "it was over before it was looked at"


def test_only_what_is_new_is_read(folder, monkeypatch):
    agent = Agent(folder)
    tail = Tail(folder / wire.journal_name(agent.pid))
    for second in range(200):
        agent.window(second + 1, second)
    assert len(tail.poll()) == 201
    agent.window(300, 300)
    monkeypatch.setattr("flatout.watch.tail.AT_ONCE", 2000)  # the whole again would not fit
    assert [line["steps"] for line in tail.poll()] == [300]
    assert tail.poll() == []


def test_a_line_that_is_half_written_a_file_that_was_cut_and_another_in_its_place(folder):
    path = folder / "journal-1.jsonl"
    tail = Tail(path)
    assert tail.poll() is None
    line = json.dumps({"kind": "fault", "where": "x", "text": "y"}) + "\n"
    path.write_text(line + line[:10])
    assert len(tail.poll()) == 1
    with path.open("a") as file:
        file.write(line[10:] + "garbage\n" + '{"kind": "window", "steps": "many"}\n')
    assert [entry["kind"] for entry in tail.poll()] == ["fault", "window"]
    path.write_text(line)
    assert len(tail.poll()) == 1
    assert tail.begun_again
    path.unlink()
    assert tail.poll() is None
    path.write_text(line * 3)
    assert len(tail.poll()) == 3


def test_epochs_and_the_time_that_is_left(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(follow.host, "command_line", lambda pid: ["python", "train.py", "--epochs", "5"])
    agent, following = Agent(folder), Follow(folder, tmp_path)
    for second in range(1, 251):
        agent.window(second, second * 10, turns=second // 100)
        training = following.poll(SPAWNED + second)
    assert training.epoch == pytest.approx(2.5, abs=0.02)
    assert training.epochs == 5
    assert training.left_s == pytest.approx(250, rel=0.02)


def test_the_start_up_is_no_part_of_a_step(folder, tmp_path):
    agent, following = Agent(folder), Follow(folder, tmp_path)
    agent.window(31, 10, phases={"startup": 30})  # the first line may come with the first steps
    agent.window(32, 20)
    assert following.poll(SPAWNED + 32).step_s == pytest.approx(0.1)


def test_a_clock_that_is_set_meanwhile_moves_nothing(folder, tmp_path):
    agent, following = Agent(folder), Follow(folder, tmp_path)
    for second in range(1, 30):
        # The sampler's clock goes on; the agent's counts from the machine's, which was wrong by an hour.
        agent.window(second, second * 10)
        training = following.poll(SPAWNED + second + 3600)
    assert training.last_told == pytest.approx(SPAWNED + 29 + 3600, abs=2)


def test_the_rank_with_most_steps_leads(folder, tmp_path):
    one, other = Agent(folder, pid=os.getpid(), rank="0"), Agent(folder, pid=os.getppid(), rank="1")
    following = Follow(folder, tmp_path)
    for second in range(1, 5):
        one.window(second, second * 10)
        other.window(second, second * 10 + 1)
        training = following.poll(SPAWNED + second)
    assert training.pid == os.getppid()
    assert sorted(training.pids) == sorted([os.getpid(), os.getppid()])
    assert [span.steps for span in following.spans][1:] == [10, 10, 10]


def test_how_a_run_ends(folder, tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    agent, following = Agent(folder, pid=process.pid), Follow(folder, tmp_path)
    agent.window(1, 10)
    assert find_running(tmp_path, {}) == folder
    assert following.poll(SPAWNED + 1).running
    process.communicate(b"\n")
    assert following.poll(SPAWNED + 2).ended == "killed"
    assert find_running(tmp_path, {}) is None
    for told, ended in (
        ("{}", "finished"),
        ('{"exit_code": 0}', "finished"),
        ('{"exit_code": 1}', "failed"),
        ("[", "finished"),
    ):
        (folder / "summary.json").write_text(told)
        assert following.poll(SPAWNED + 2).ended == ended
    shutil.rmtree(folder)
    assert following.poll(SPAWNED + 3).ended == "record-gone"


def test_journals_of_damaged_disks_are_survived(folder, tmp_path):
    (folder / "job.json").write_bytes(b"\xff{")
    (folder / "journal-1.jsonl").write_bytes(
        os.urandom(5000) + b'\n{"kind":"window","phases":[1],"t":1}\n' + b"[" * 9000 + b"\n"
    )
    (folder / "journal-2.jsonl").mkdir()
    assert Follow(folder, tmp_path).poll(SPAWNED).steps == 0


SCRIPT = """
import time, torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(400):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
"""


@pytest.mark.thorough
def test_a_real_run_is_followed_while_it_runs(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-c", "from flatout.cli.main import main; main()", "run", "--quiet", "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}) as running:
        following, seen = None, []
        end = time.monotonic() + 120
        while running.poll() is None and time.monotonic() < end:
            place = find_running(tmp_path, {}) if following is None else None
            following = Follow(place, tmp_path) if place is not None else following
            if following is not None:
                seen.append(following.poll(time.time()))
            time.sleep(0.2)
    alive = [one for one in seen if one.running and one.steps]
    assert len({one.steps for one in alive}) >= 2
    assert alive[-1].losses
    assert abs(alive[-1].last_told - time.time()) < 60
    assert following.poll(time.time()).ended == "finished"
    assert Path(tmp_path / ".flatout").is_dir()
