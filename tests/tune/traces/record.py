"""python -m record SCRIPT OUT.json [STEPS]: the step times of a script, as `flatout tune` sees them, for the judge's tests."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from flatout.base.clock import SystemClock
from flatout.base.records import dump
from flatout.launch.protection import Unprotected
from flatout.tune.execution.trial_runner import Trials
from flatout.tune.search.questions_and_answers import Mode, Segment

SEGMENT_STEPS = 250  # below what an agent adds up


def segment(number: int, steps: int) -> Segment:
    return Segment(
        id=number,
        knobs={},
        warm_steps=1,
        timed_s=0.0,
        timed_steps=steps,
        mode=Mode.REAL,
        restart=False,
        stage="baseline",
        trying=[],
    )


def main(script: str, target: str, steps: int = 1000) -> None:
    times: list[float] = []
    waits: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        command, log = [sys.executable, os.path.abspath(script)], Path(folder) / "log"
        with Trials(command, dict(os.environ), Unprotected(), SystemClock(), log) as trials:
            assert trials.look() is not None, trials.said
            for number in range(1, -(-steps // SEGMENT_STEPS) + 1):
                asked = segment(number, SEGMENT_STEPS)
                child = trials._child
                assert child is not None
                child.ask(dump(asked))
                assert trials._wait(child, lambda: child.answer(asked.id), 300.0) == ""  # noqa: B023
                answer = child.answer(number)
                times += answer["step_times"]
                waits += answer["step_waits"]
    rounded = {"step_times": [round(one, 5) for one in times], "step_waits": [round(one, 5) for one in waits]}
    told = {"script": Path(script).stem, **rounded}
    Path(target).write_text(json.dumps(told, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:3], *(int(one) for one in sys.argv[3:]))
