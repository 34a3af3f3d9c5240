"""A small real training that deletes and overwrites its output folder, and in which a fault strikes where it is planted.

`INJECT` is `fault@moment`, or empty. What struck is noted in the folder `INJECT_NOTES`, which `hurried.py` shares with the
trials: what they write elsewhere is thrown away. From inside a trial no process of the front can be seen: for the faults that
strike it, a note asks `inject.py` to send the signal.
"""

import ctypes
import json
import os
import resource
import shutil
import signal
import sys
import time

FAULT, _, MOMENT = os.environ.get("INJECT", "").partition("@")
NOTES = os.environ["INJECT_NOTES"]
KNOB = "channels_last"
JOB = os.path.dirname(os.environ["FLATOUT_JOB"])
CHILD = os.path.basename(JOB)  # in namespaces of their own all children have the same process number
SEARCH = os.path.dirname(JOB)  # the search's own folder, on the disk that both sides write to
SIGNALS = {"kill-parent": ["SIGKILL"], "ctrl-c": ["SIGINT"] * 2, "term": ["SIGTERM"] * 2}  # whoever presses once presses twice

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def note(name, text=CHILD):
    with open(os.path.join(NOTES, name), "a", encoding="ascii") as file:
        file.write(f"{text}\n")


def count(name):
    try:
        with open(os.path.join(NOTES, name), encoding="ascii") as file:
            return len(file.readlines())
    except FileNotFoundError:
        return 0


def fill_the_disk():
    """The one with the search's folder, to the last byte. The temporary folder of a trial lies elsewhere."""
    with open(os.path.join(SEARCH, "ballast"), "ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


def strike(fault=FAULT):
    note("struck")
    if fault == "oom":
        torch.empty(1 << 58) if "torch" in sys.modules else bytearray(1 << 58)
    if fault == "hang":
        time.sleep(3600)
    if fault == "segfault":
        ctypes.string_at(0)
    if fault == "exception":
        raise RuntimeError("planted")
    if fault == "exit":
        sys.exit(0)
    if fault == "_exit":
        os._exit(0)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault in SIGNALS:
        note("signals", " ".join(SIGNALS[fault]))
        time.sleep(3600)  # until the front ends it, or where that is killed, its keeper
    if fault == "full-disk":
        fill_the_disk()


class Moments:
    """Which segment is asked for, and how many steps ago it began."""

    def __init__(self):
        self.segment, self.seen, self.since = {}, 0, 0

    def look(self):
        path = os.path.join(JOB, "segment.json")
        try:
            changed = os.stat(path).st_mtime_ns
        except OSError:
            return
        if changed != self.seen:
            with open(path, encoding="utf-8") as file:
                self.segment = json.load(file)
            self.seen, self.since = changed, 0

    def on_trial(self):
        self.look()
        return KNOB in self.segment.get("knobs", {})

    def stepped(self):
        on_trial = self.on_trial()
        self.since += 1
        warm = self.segment.get("warm_steps", 0)
        if on_trial and (MOMENT, self.since) in (("warm-up", 1), ("timed", warm + 4)):
            strike()
        if on_trial and MOMENT in ("start", "journal") and self.since == warm + 4 and count("children") == 1:
            strike("kill")  # for a second child


moments = Moments()
note("children")
if (MOMENT, count("children")) in (("first-start", 1), ("start", 2)):
    strike()

# As scripts do that begin anew.
shutil.rmtree("out", ignore_errors=True)
os.makedirs("out")
with open("notes.txt", "w", encoding="ascii") as file:
    file.write("begun again")

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

answered = os.replace


def replace(source, target, **more):
    if MOMENT == "answer" and "result-" in str(target) and moments.on_trial():
        strike()
    return answered(source, target, **more)


os.replace = replace


class Net(nn.Sequential):
    def parameters(self, recurse=True):
        """The knob asks for them while it is put on."""
        if MOMENT == "switch" and moments.on_trial():
            strike()
        return super().parameters(recurse)


def save(net):
    """In two halves, over what was there."""
    with open("out/last.pt", "wb") as file:
        file.write(b"half")
        if MOMENT == "write" and moments.on_trial():
            file.flush()
            strike()
        file.write(b"the other half" * 1000)
        file.flush()
    os.rename("out/last.pt", "out/best.pt")


torch.manual_seed(0)
net = Net(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = TensorDataset(torch.randn(400, 3, 8, 8), torch.randint(0, 2, (400,)))
step = 0
while True:
    for x, y in DataLoader(data, batch_size=4, shuffle=True):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        moments.stepped()
        step += 1
        if step % 5 == 0:
            save(net)
