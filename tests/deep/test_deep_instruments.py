"""The instruments on their own: the profiler begun anew, warnings of synchronisations, the counting mode."""

import sys
import warnings
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from _flatout_agent.modes.deep_look.device_kernels import ProfileLook
from _flatout_agent.modes.deep_look.flops import FlopLook
from _flatout_agent.modes.deep_look.hidden_syncs import SyncLook
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.step_clock import StepClock


@pytest.fixture
def profile():
    look = ProfileLook(torch)
    yield look
    look.abandon()
    look.leave()


def test_what_came_before_a_new_beginning_does_not_count(profile, monkeypatch):
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")
    assert profile.refusal() is None
    profile.begin()
    torch.ones(64).cumsum(0)
    profile.again()
    torch.ones(64, 64) @ torch.ones(64, 64)
    names = [one["name"] for one in profile.end(1)["top"]]
    assert "aten::mm" in names
    assert "aten::cumsum" not in names


def test_the_script_that_makes_a_profiler_gets_it(profile, monkeypatch):
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")
    profile.begin()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        torch.ones(4, 4) @ torch.ones(4, 4)
    assert "aten::mm" in [one.key for one in theirs.key_averages()]
    assert profile.end(3) == {"reason": "script-profiles"}
    assert profile.refusal() == "script-profiles"
    profile.leave()
    assert "_flatout_agent" not in torch.profiler.profile.__init__.__code__.co_filename


class Cuda:
    """As much of torch.cuda as the look needs; the warnings are ours."""

    def __init__(self):
        self.mode = 0

    def is_initialized(self):
        return True

    def get_sync_debug_mode(self):
        return self.mode

    def set_sync_debug_mode(self, mode):
        self.mode = {"default": 0, "warn": 1}[mode]
        if self.mode:
            warnings.warn("Synchronization debug mode is a prototype feature", UserWarning, stacklevel=1)


def synchronise():
    warnings.warn("called a synchronizing CUDA operation (Triggered internally at x.cpp:1.)", UserWarning, stacklevel=1)


def test_hidden_synchronisations_are_found_and_warnings_left_as_they_were():
    """Under a filter that makes every warning an error, as this suite has."""
    look = SyncLook(SimpleNamespace(cuda=Cuda(), __file__=torch.__file__))
    filters, show = list(warnings.filters), warnings._showwarnmsg
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        inside = list(warnings.filters)
        look.begin()
        for _ in range(4):
            synchronise()
        warnings.warn("mine", UserWarning, stacklevel=1)
        told = look.end(2)
        assert warnings.filters == inside
    (site,) = told["sites"]
    assert site["site"].startswith(f"{__file__}:")
    assert site["count"] == 2
    assert [str(one.message) for one in shown] == ["mine"]
    assert (warnings.filters, warnings._showwarnmsg) == (filters, show)
    assert look.refusal() is None


def test_warnings_that_are_errors_do_not_reach_the_script():
    look = SyncLook(SimpleNamespace(cuda=Cuda(), __file__=torch.__file__))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        look.begin()
        synchronise()
        with pytest.raises(UserWarning, match="mine"):
            warnings.warn("mine", UserWarning, stacklevel=1)
        assert look.end(1)["sites"][0]["count"] == 1
        with pytest.raises(UserWarning):
            synchronise()


def count(work):
    look = FlopLook(torch, Tape(StepClock(0), lambda now: None))
    look.begin()
    work()
    return look.end(1)


@pytest.fixture(autouse=True)
def _nothing_was_compiled():
    """Dynamo counts for the whole process, and another test may have compiled in it."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is not None:
        utils.counters.clear()


def test_operations_and_bytes():
    a, b = torch.ones(8, 16), torch.ones(16, 4)
    told = count(lambda: a @ b)
    assert told["flops"] == 2 * 8 * 16 * 4
    assert told["by_dtype"] == {"float32": 2 * 8 * 16 * 4}
    assert told["bytes"] == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert count(lambda: a.t())["reason"] == "nothing-counted"


def test_types_are_told_apart_and_autocast_is_seen():
    a = torch.ones(8, 8)

    def work():
        a @ a
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a @ a

    assert count(work)["by_dtype"] == {"float32": 1024, "bfloat16": 1024}


def test_a_mode_of_the_scripts_on_top_is_left_alone():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Theirs(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    look = FlopLook(torch, Tape(StepClock(0), lambda now: None))
    look.begin()
    with Theirs():
        with pytest.raises(RuntimeError, match="lies on top"):
            look.end(1)
        assert torch.ones(2).sum().item() == 2
    assert look._counting.closed
    look.abandon()
    assert look._counting is None
