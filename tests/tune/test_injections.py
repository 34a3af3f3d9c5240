"""A sample of the faults that `inject.py` plants: the whole list, ten times over, is run by hand."""

import os
import subprocess
import sys
from types import SimpleNamespace

import inject
import pytest
from injections import BY_NAME, FAULTS, INJECTIONS, KIND, MOMENTS, STOPS

from _flatout_agent.wire import GAVE_UP
from flatout.tune.model import Status
from flatout.tune.trials import fault_of

SAMPLE = ["segfault@write", "ctrl-c@timed", "kill-parent@first-start"]


def can_mount():
    way = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    command = ["unshare", *way, "mount", "-t", "tmpfs", "none", "/mnt"]
    return sys.platform == "linux" and subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_every_fault_at_every_moment_is_in_the_list():
    assert {(one.fault, one.moment) for one in INJECTIONS} >= {(fault, moment) for fault in FAULTS for moment in MOMENTS}
    assert set(FAULTS) == KIND.keys() | STOPS.keys()


@pytest.mark.parametrize("name", SAMPLE)
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
