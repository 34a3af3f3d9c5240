"""Saves one checkpoint after the other until it is killed; forked, so that torch is imported once for all kills.

python saver.py FOLDER KILLS      kills so many savers at random moments and loads what each leaves
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from trainings import LOSS, training

from flatout import TrainingAccelerator


def save_for_ever(path):
    """Says by one byte that the first whole checkpoint is there."""
    accelerator = TrainingAccelerator()
    model, optimizer, loader = accelerator.prepare(*training(noise=False))
    with torch.no_grad():
        model.register_buffer("ballast", torch.zeros(1 << 18))  # a megabyte: a kill finds it half written
    while True:
        for x, y in loader:
            accelerator.backward(LOSS(model(x), y))
            accelerator.step(optimizer)
            model.ballast.fill_(accelerator.steps)
            accelerator.save(path, step=accelerator.steps)
            yield accelerator.steps


def kill_one(path, seconds):
    """A saver, killed so long after its first save."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for _ in save_for_ever(path):
                os.write(writer, b".")
        finally:
            os._exit(1)
    os.read(reader, 1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)


def loads_whole(path):
    """The step of the checkpoint, all of whose parts are of that step."""
    accelerator = TrainingAccelerator()
    model, optimizer, _ = accelerator.prepare(*training(1, noise=False))
    model.register_buffer("ballast", torch.zeros(1 << 18))
    step = accelerator.load(path)["step"]
    assert step == accelerator.steps
    assert bool((model.ballast == step).all())
    assert int(next(iter(optimizer.state.values()))["step"]) == step
    return step


def kill_many(folder, kills):
    """How many kills found a save under way, seen by the part that it left."""
    torch.set_num_threads(1)
    dice = random.Random(0)
    caught = 0
    for number in range(kills):
        path = Path(folder) / f"{number % 3}.pt"  # written over, as trainings do
        kill_one(path, dice.uniform(0, 0.03))
        caught += (path.parent / f".{path.name}.part").exists()
        loads_whole(path)
    return caught


if __name__ == "__main__":
    print(f"{sys.argv[2]} kills, all loadable; {kill_many(sys.argv[1], int(sys.argv[2]))} in the middle of a save")
