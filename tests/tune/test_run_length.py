"""How long a run will be: asked for, seen in an earlier run, or said by the script's own argument."""

import json
import sys

import pytest

from flatout.base import records
from flatout.base.records import Missing
from flatout.machine import facts
from flatout.machine.machine_facts import Interpreter
from flatout.measure.delivered import Delivery
from flatout.measure.model import Note, Summary, TorchBuild
from flatout.tune.search.run_length import RunLength, find_length, kept_promises

HEAD = "import argparse\nparser = argparse.ArgumentParser()\n"


def line(path, *arguments):
    return [sys.executable, str(path), *arguments]


def recorded(folder, name, command, steps, exit_code=0, notes=(), promise=None, wall_s=1.0, knobs=(), batches=0,
             parts=None):  # fmt: skip
    """As `flatout run` leaves it; of a summary only these fields are looked at."""
    place = folder / ".flatout" / "runs" / name
    place.mkdir(parents=True)
    none = Missing("no-steps")
    summary = Summary(
        run_id=name, command=command, started=0.0, wall_s=wall_s, exit_code=exit_code, signal=None, steps=steps, samples=none,
        samples_per_s=none, step_s=none, warmup_steps=0, phases={}, processes=1, torch=TorchBuild(version="2.9"),
        machine=facts.machine(Interpreter(path=sys.executable)), notes=[Note(code=code) for code in notes], promise=promise,
        knobs=list(knobs), batches=batches, parts=parts or {},
    )  # fmt: skip
    records.write(place / "summary.json", summary)


def test_what_was_asked_for_counts_first(tmp_path, script):
    path = script(HEAD + 'parser.add_argument("--epochs", type=int, default=7)')
    assert find_length(line(path), 500, {"loaders": [50]}, tmp_path) == RunLength(steps=500, epochs=10.0, source="asked")


def test_an_earlier_run_of_the_same_command_counts_before_the_argument(tmp_path, script):
    path = script(HEAD + 'parser.add_argument("--epochs", type=int, default=7)')
    command = line(path, "--lr", "1")
    recorded(tmp_path, "20260101-000000-aaaa", command, 90)
    recorded(tmp_path, "20260102-000000-bbbb", command, 120)
    recorded(tmp_path, "20260103-000000-cccc", line(path, "--lr", "2"), 33)
    recorded(tmp_path, "20260104-000000-dddd", command, 44, exit_code=1)
    recorded(tmp_path, "20260105-000000-eeee", command, 55, notes=["cut-short"])
    damaged = tmp_path / ".flatout" / "runs" / "20260106-000000-ffff"
    damaged.mkdir()
    (damaged / "summary.json").write_text(json.dumps({"kind": "run-summary", "version": 99}), encoding="utf-8")
    found = find_length(command, None, {"loaders": [40]}, tmp_path)
    assert found == RunLength(steps=120, epochs=3.0, source="earlier-run")


@pytest.mark.parametrize(
    ("declared", "arguments", "epochs"),
    [
        ('"--epochs", type=int, default=7', [], 7),
        ('"--epochs", type=int, default=7', ["--epochs", "12"], 12),
        ('"-e", "--num_epochs", type=int, default=7', ["-e", "3"], 3),
        ('"--n-epochs", default=4', [], 4),
        ('"--trainer.max_epochs", default=9', [], 9),
    ],
)
def test_epochs_by_the_scripts_own_argument(declared, arguments, epochs, tmp_path, script):
    path = script(HEAD + f"parser.add_argument({declared})\nparser.parse_args()\n")
    found = find_length(line(path, *arguments), None, {"loaders": [25, None]}, tmp_path)
    assert found == RunLength(steps=25 * epochs, epochs=float(epochs), source="own-argument")


@pytest.mark.parametrize(
    "declared", ['"--warmup-epochs", default=3', '"--start-epoch", default=1', '"--save-every-epochs", default=2']
)
def test_epochs_of_something_else(declared, tmp_path, script):
    path = script(HEAD + f"parser.add_argument({declared})\nparser.parse_args()\n")
    assert find_length(line(path), None, {"loaders": [25]}, tmp_path) is None


def test_steps_by_the_scripts_own_argument(tmp_path, script):
    path = script(HEAD + 'parser.add_argument("--max_iters", type=int, default=600)')
    assert find_length(line(path), None, {"loaders": []}, tmp_path) == RunLength(steps=600, epochs=None, source="own-argument")


def test_unknown_is_none(tmp_path, script):
    assert find_length(line(script("for epoch in range(3): pass")), None, {"loaders": [9]}, tmp_path) is None
    path = script(HEAD + 'parser.add_argument("--epochs", type=int, default=0)')
    assert find_length(line(path), None, {}, tmp_path) is None


def test_what_earlier_runs_kept_of_their_promise(tmp_path, script):
    command = line(script("pass"))
    recorded(tmp_path, "20260101-000000-aaaa", command, 90, promise=Delivery(code="short", ratio=0.8))
    recorded(tmp_path, "20260102-000000-bbbb", command, 90, promise=Delivery(code="not-judged", why="stopped-early"))
    recorded(tmp_path, "20260103-000000-cccc", command, 90)
    recorded(tmp_path, "20260104-000000-dddd", command, 90, promise=Delivery(code="delivered", ratio=1.01))
    others = line(script("pass"), "--lr", "1")
    recorded(tmp_path, "20260105-000000-eeee", others, 90, promise=Delivery(code="short", ratio=0.3))
    assert kept_promises(command, tmp_path) == [1.01, 0.8]
