"""A sample of the faults that `inject.py` plants: the whole list, ten times over, is run by hand."""

import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import inject
import pytest
from injections import BY_NAME, FAULTS, INJECTIONS, KIND, MOMENTS, STOPS

from _flatout_agent.wire import GAVE_UP
from flatout.base.clock import SystemClock
from flatout.launch import scratch
from flatout.launch.protection import Unprotected
from flatout.tune.execution.trial_runner import LONGEST_S, Trials, fault_of
from flatout.tune.search.questions_and_answers import Mode, Segment, Status

SAMPLE = ["segfault@write", "exit@timed", "ctrl-c@timed", "kill-parent@first-start"]


def can_mount():
    way = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    command = ["unshare", *way, "mount", "-t", "tmpfs", "none", "/mnt"]
    return sys.platform == "linux" and subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_every_fault_at_every_moment_is_in_the_list():
    assert {(one.fault, one.moment) for one in INJECTIONS} >= {(fault, moment) for fault in FAULTS for moment in MOMENTS}
    assert set(FAULTS) == KIND.keys() | STOPS.keys()


@pytest.mark.parametrize(
    "name", [SAMPLE[0], SAMPLE[2], *(pytest.param(SAMPLE[at], marks=pytest.mark.thorough) for at in (1, 3))]
)
def test_a_planted_fault(name):
    pytest.importorskip("torch")
    if not can_mount():
        pytest.skip("no mount namespaces here")
    _, wrong, told = inject.one(BY_NAME[name])
    assert wrong == [], told


@pytest.mark.parametrize(
    ("code", "ended", "said", "expected"),
    [
        (None, "hang", "", Status.HANG),
        (-9, "exit", "", Status.KILLED),
        (-11, "exit", "", Status.SEGFAULT),
        (-6, "exit", "free(): invalid pointer", Status.SEGFAULT),
        (-7, "exit", "", Status.SEGFAULT),
        (1, "exit", "Traceback …\nValueError: no", Status.CRASH),
        (1, "exit", "Traceback …\ntorch.OutOfMemoryError: CUDA out of memory", Status.OOM),
        (1, "exit", "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried", Status.OOM),
        (1, "exit", "Traceback …\nMemoryError", Status.OOM),
        (-6, "exit", "terminate called after throwing an instance of 'std::bad_alloc'", Status.OOM),
        (3, "exit", "good bye", Status.EXIT),
        (0, "exit", "good bye", Status.ENDED),
        (0, "exit", "an OutOfMemoryError was met, and half the batch is taken", Status.ENDED),
        (GAVE_UP, "exit", "", Status.CRASH),
    ],
)
def test_every_end_has_its_kind(code, ended, said, expected):
    words = ("OutOfMemoryError", "can't allocate memory", "MemoryError", "bad_alloc")
    child = SimpleNamespace(
        process=SimpleNamespace(returncode=code), said=lambda: said, ran_out_of_memory=lambda: any(w in said for w in words)
    )
    assert fault_of(child, ended) is expected


def segment(**knobs):
    return Segment(
        id=1, knobs=knobs, warm_steps=3, timed_s=0.5, timed_steps=8, mode=Mode.REAL, restart=False, stage="compute", trying=[]
    )


def test_busy_is_not_getting_on_but_what_is_slow_is_waited_for():
    trials = Trials.__new__(Trials)
    trials.start_s, trials._slowest_s = 3.0, 1.0
    assert trials._patience_s(segment(workers="4")) == 110.0
    assert trials._patience_s(segment(compile="default")) == LONGEST_S
    trials.start_s, trials._slowest_s = 60.0, 0.0  # three steps of twenty seconds, and nothing measured yet
    assert trials._patience_s(segment()) == LONGEST_S


def test_an_end_far_before_that_of_others_is_an_exit_in_the_middle():
    trials = Trials.__new__(Trials)
    trials._furthest, trials._furthest_endless, trials._endless, trials._answered = 1000, 4000, False, 0
    ended_after = [SimpleNamespace(steps=lambda steps=steps: steps) for steps in (None, 12, 499, 500, 1000)]
    assert [trials._too_soon(child, segment()) for child in ended_after] == [True, True, True, False, False]
    trials._answered = 600  # told by what it answered, where it left without a word
    assert not trials._too_soon(ended_after[0], segment())
    trials._endless = True  # others came further that way
    assert trials._too_soon(ended_after[4], segment())
    # With a larger batch an epoch has fewer steps.
    assert not trials._too_soon(ended_after[1], segment(batch_size="256"))


def test_a_full_disk_is_seen_while_a_child_is_waited_for(tmp_path, monkeypatch):
    """Its agent has nowhere to write, and the script trains on: it would be waited for in vain."""
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    with Trials(sleeper, dict(os.environ), Unprotected(), SystemClock(), tmp_path / "log") as trials:
        trials.patience.keep_to(1.0)
        # Full as long as the child is there: whoever looks after its end alone sees nothing.
        monkeypatch.setattr(
            scratch.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 30 if trials._child is None else 4096)
        )
        with pytest.raises(OSError, match="No space left") as told:
            trials.look()
    assert told.value.errno == errno.ENOSPC


def test_a_script_that_ends_in_the_switch_answers_nothing(tmp_path):
    """What was timed belongs to the segment before: under the new one's number it would be a lie."""
    from _flatout_agent.modes.trial_mode import SegmentsCourse

    def leave(knobs):
        raise SystemExit

    course = SegmentsCourse(SimpleNamespace(), str(tmp_path))
    course._mark, course._steps = object(), 12  # as after a timed segment
    (tmp_path / "segment.json").write_text('{"id": 2, "mode": "real", "knobs": {}, "warm_steps": 3}', encoding="ascii")
    clock = SimpleNamespace(totals=[0] * 12)
    scene = SimpleNamespace(compilations=SimpleNamespace())
    driver = SimpleNamespace(set=leave, tape=SimpleNamespace(clock=clock), scene=scene)
    with pytest.raises(SystemExit):
        course._ask(driver)
    course.finish(driver)
    assert not list(tmp_path.glob("result-*"))
