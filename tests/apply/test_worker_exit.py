"""Workers that stay from epoch to epoch are gone at once when the script ends."""

import os
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")

from conftest import QUIET

# What torch 2.4 to 2.11 does where batches are pinned, which takes a device: at exit it waits for each worker that stays.
SCRIPT = """
import atexit, time
import torch
from torch.utils.data import DataLoader, TensorDataset, dataloader
from _flatout_agent.knobs.loader.replacement_iterators import LiveSampler, Settings, build

made = dataloader._MultiProcessingDataLoaderIter.__init__

def made_and_awaited(self, loader):
    made(self, loader)
    for worker in self._workers:
        atexit.register(worker.join, 5)

dataloader._MultiProcessingDataLoaderIter.__init__ = made_and_awaited

if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.arange(400)), batch_size=4)
    settings = Settings(3, True, 2, False)
    kept = [
        build(torch, loader, settings, LiveSampler(iter(loader.batch_sampler)), seed) for seed in (1, 2)
    ]
    print([next(one)[0].tolist() for one in kept], flush=True)
    print(sum(1 for _ in kept[1]), time.time(), flush=True)
"""


def test_the_script_ends_at_once(script):
    path = script(SCRIPT)
    environ = {**os.environ, **QUIET}
    ended = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120, env=environ)
    now = time.time()
    assert ended.returncode == 0, ended.stderr
    first, second, *_ = ended.stdout.splitlines()
    assert first == "[[0, 1, 2, 3], [0, 1, 2, 3]]"
    counted, last_line = second.split()
    assert counted == "99"
    assert now - float(last_line) < 15  # six workers would take thirty


OWN_SCRIPT = """
import atexit, threading, time
import torch
from torch.utils.data import DataLoader, TensorDataset, dataloader
from _flatout_agent.timeline.hooks import loader_wait as observed
from _flatout_agent.timeline.step_clock import StepClock
from _flatout_agent.core.patches import Patches
from _flatout_agent.timeline.event_buffer import Tape

kind = dataloader._MultiProcessingDataLoaderIter
made = kind.__init__
if hasattr(kind, "_clean_up_persistent_workers_atexit"):
    del kind._clean_up_persistent_workers_atexit  # of newer torch, which needs no help

def made_and_awaited(self, loader):
    made(self, loader)
    self._pin_memory_thread = threading.main_thread()  # as where batches are pinned
    for worker in self._workers:
        atexit.register(worker.join, 5)

kind.__init__ = made_and_awaited

def last_look():
    print("alive", sum(worker.is_alive() for worker in loader._iterator._workers), flush=True)

if __name__ == "__main__":
    observed.watch(torch, Tape(StepClock(0), lambda now: None), Patches())
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=4, num_workers=3, persistent_workers=True)
    for _ in range(2):
        print(sum(1 for _ in loader), flush=True)
    atexit.register(last_look)
    print(time.time(), flush=True)
"""


def test_the_scripts_own_workers_are_not_waited_for(script):
    path = script(OWN_SCRIPT)
    ended = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=120, env={**os.environ, **QUIET}
    )
    now = time.time()
    assert ended.returncode == 0, ended.stderr
    first, second, last_line, alive = ended.stdout.splitlines()
    assert (first, second) == ("2", "2")
    assert alive == "alive 3"  # to what the script registered after it made them
    assert "Error" not in ended.stderr
    assert now - float(last_line) < 12  # three workers would take fifteen
