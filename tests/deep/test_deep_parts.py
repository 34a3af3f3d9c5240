"""The looks one by one: the schedule with planted faults, the sampler's lines, the device's intervals."""

import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data._utils import fetch

from _flatout_agent.core import fault_guard
from _flatout_agent.core.patches import Patches
from _flatout_agent.modes.deep_look import device_kernels, schedule, stack_sampling
from _flatout_agent.modes.deep_look.sample_cost import MOST_WORKERS, has_room
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.step_clock import StepClock


class Planted:
    """A look that notes what is done to it, and fails where it is told to."""

    steps = 2
    restarts = True

    def __init__(self, name, fails="", refuses=None):
        self.name, self.fails, self.refuses, self.done = name, fails, refuses, []

    def _do(self, what):
        self.done.append(what)
        if self.fails == what:
            raise RuntimeError(f"planted in {what}")

    def refusal(self):
        self._do("refusal")
        return self.refuses

    def begin(self):
        self._do("begin")

    def again(self):
        self._do("again")

    def leave(self):
        pass

    def end(self, steps):
        self._do("end")
        return {"found": steps}

    def abandon(self):
        self._do("abandon")


@pytest.fixture
def stage(tmp_path, monkeypatch):
    monkeypatch.setattr(fault_guard, "_seen", set())
    written, faults = [], []
    monkeypatch.setattr(fault_guard, "_report", lambda where, text: faults.append(where))
    patches, tape = Patches(), Tape(StepClock(0), lambda now: None)

    def write(**fields):
        written.append(fields)

    looks = schedule.DeepLook(torch, tape, patches, str(tmp_path), write, write)
    yield looks, tape, written, faults
    looks.finish()
    patches.take_off()


def step(tape, count=1, optimizer=1):
    for _ in range(count):
        now = time.perf_counter_ns()
        tape.note((tape.clock.step_began, now, optimizer))
        tape.note((tape.clock.step_ended, now + 1, optimizer))
        tape.tick(now + 1)


def test_one_look_after_the_other_and_then_nothing_is_left(stage):
    looks, tape, written, faults = stage
    looks._waiting = [Planted("a"), Planted("b", refuses="no-device"), Planted("c")]
    step(tape, 19)
    assert written == []
    step(tape, 10)
    assert [(line["look"], line.get("found"), line.get("reason")) for line in written] == [
        ("a", 2, None),
        ("b", None, "no-device"),
        ("c", 2, None),
    ]
    assert "read" not in vars(tape)
    assert tape.due > 0
    assert faults == []


@pytest.mark.parametrize("where", ["refusal", "begin", "end", "abandon"])
def test_a_fault_in_one_look_stays_there(stage, where):
    looks, tape, written, faults = stage
    bad, good = Planted("bad", fails=where), Planted("good")
    looks._waiting = [bad, good]
    step(tape, 40)
    assert "read" not in vars(tape)
    if where == "abandon":
        assert faults == []  # nothing had to be abandoned
    else:
        assert faults
    if where in ("begin", "end"):
        assert [line.get("reason") for line in written if line["look"] == "bad"] == ["failed"]
        assert good.done == ["refusal", "begin", "end"]


def test_a_validation_in_between_makes_it_look_again(stage):
    looks, tape, written, _ = stage
    look = Planted("a")
    looks._waiting = [look]
    step(tape, 21)
    tape.clock.validation_batches += 3
    step(tape, 4)
    assert look.done == ["refusal", "begin", "again", "end"]
    assert [line["steps"] for line in written] == [2]


def test_before_a_fork_the_look_is_put_away(stage):
    looks, tape, _, _ = stage
    look = Planted("a")
    looks._waiting = [look]
    step(tape, 21)
    looks.before_fork()
    assert look.done[-1] == "abandon"
    step(tape, 4)
    assert look.done[-1] == "end"


def test_a_forked_child_looks_at_nothing(stage):
    looks, tape, written, _ = stage
    looks._waiting = [Planted("a")]
    looks.after_fork()
    step(tape, 40)
    assert written == []
    assert "read" not in vars(tape)


def test_a_look_that_the_end_cuts_short(stage):
    looks, tape, written, _ = stage
    looks._waiting = [Planted("a")]
    step(tape, 21)
    looks.finish()
    assert written == [{"look": "a", "reason": "cut-short"}]


def test_torch_that_is_too_old_is_told_once_there_is_a_training():
    written = []
    tape = Tape(StepClock(0), lambda now: None)
    refusal = schedule.Refusal(tape, lambda **fields: written.append(fields))
    refusal.finish()
    assert written == []
    step(tape)
    tape.tell()
    refusal.finish()
    assert written == [{"look": "none", "reason": "torch-too-old"}]


def test_loaders_are_left_as_they_were(stage):
    stage[0].finish()
    for function in (DataLoader.__iter__, fetch._MapDatasetFetcher.fetch, fetch._IterableDatasetFetcher.fetch):
        assert "_flatout_agent" not in function.__code__.co_filename


def test_the_line_inside_the_dataset_is_the_users_own():
    class Data(TensorDataset):
        def __getitem__(self, index):
            time.sleep(0.02)
            return super().__getitem__(index)

    folder = torch.__file__.rsplit("__init__", 1)[0]
    loader = DataLoader(Data(torch.zeros(30, 2)), batch_size=5)
    sampler = stack_sampling.Sampler(threading.get_ident(), folder)
    sampler.start()
    list(loader)
    time.sleep(0.05)  # outside of the dataset: not counted
    sampler.stop()
    told = sampler.told()
    assert told["samples"] > 20
    assert told["lines"][0]["function"] == "__getitem__"
    assert told["lines"][0]["site"].startswith(__file__)
    assert told["lines"][0]["share"] > 0.8
    assert sampler.over


def test_the_sampler_ends_by_itself(monkeypatch):
    monkeypatch.setattr(stack_sampling, "LONGEST", 0.05)
    before = sys.getswitchinterval()
    sampler = stack_sampling.Sampler(threading.get_ident(), "/nowhere")
    ended = threading.Event()
    sampler.after = ended.set
    sampler.start()
    assert ended.wait(5)
    sampler.stop()
    assert sampler.told() == {"lines": [], "samples": 0}
    assert sys.getswitchinterval() == before


def test_not_every_worker_of_a_long_run_looks(tmp_path):
    assert sum(has_room(str(tmp_path)) for _ in range(40)) == MOST_WORKERS


class Event:
    def __init__(self, name, start=0, duration=0, kind="CUDA", device=0):
        self.values = (name, start, duration, kind, device)

    name = property(lambda self: lambda: self.values[0])
    start_ns = property(lambda self: lambda: self.values[1])
    duration_ns = property(lambda self: lambda: self.values[2])
    device_type = property(lambda self: lambda: self.values[3])
    device_index = property(lambda self: lambda: self.values[4])


def test_what_the_device_did():
    events = [
        Event("Optimizer.step#SGD.step", kind="CPU"),
        Event("Optimizer.step#SGD.step", 0, 1_000_000),  # a range of the host's, drawn on the device
        Event("gemm", 0, 40_000),
        Event("gemm", 30_000, 30_000),  # on another stream
        Event("relu", 60_500, 9_500),
        Event("Memcpy HtoD (Pinned -> Device)", 100_000, 20_000),
        Event("gemm", 0, 1_000_000, device=1),
    ]
    work = device_kernels.device_work(events, "CUDA", 0)
    told = device_kernels.device_story(work, 200_000, steps=2)
    assert told["device_busy"] == [60_000 + 9_500 + 20_000, 200_000]
    assert told["kernels_per_step"] == 1.5
    assert told["gaps"] == {"count": 1, "ns": 30_000, "longest_ns": 30_000}
    assert told["copy_ns"] == 20_000
    assert told["top"][0] == {"name": "gemm", "ns": 70_000, "share": 0.8805, "count": 2}


def test_a_device_that_did_nothing():
    told = device_kernels.device_story([], 1000, steps=3)
    assert told["device_busy"] == [0, 1000]
    assert (told["kernels_per_step"], told["top"]) == (0, [])
