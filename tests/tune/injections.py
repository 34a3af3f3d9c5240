"""The fixed list: every fault at every moment, and what is to come of it.

Faults strike in the script (`planted_tune/train.py`), but for those of the front's own writing (`planted_tune/hurried.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

FAULTS = ("oom", "hang", "segfault", "exception", "exit", "_exit", "kill", "kill-parent", "ctrl-c", "term", "full-disk")

# first-start: the very first child. start: a later child, after one that was killed. switch: while the knob is put on.
# write: in the middle of the script's own checkpoint. answer: while the agent writes a result. journal: while the front
# writes a line.
MOMENTS = ("first-start", "start", "warm-up", "timed", "switch", "write", "answer")

KIND = {
    "oom": "oom",
    "hang": "hang",
    "segfault": "segfault",
    "exception": "crash",
    "exit": "exit",
    "_exit": "exit",
    "kill": "killed",
}
# These end the front, with this exit code; it is taken up again by --resume.
STOPS = {"kill-parent": -9, "ctrl-c": 130, "term": 143, "full-disk": 1}


@dataclass(frozen=True)
class Injection:
    fault: str
    moment: str
    code: int  # exit code of the first `flatout tune`
    kind: str = ""  # status of the struck segment in the journal
    resumed: bool = False  # stopped, and taken up again by --resume
    refused: bool = False  # the knob itself is refused, no child dies

    @property
    def name(self) -> str:
        return f"{self.fault}@{self.moment}"


def _injection(fault: str, moment: str) -> Injection:
    if moment == "first-start" or fault in STOPS:
        return Injection(fault, moment, code=STOPS.get(fault, 1), resumed=moment != "first-start")
    ours = fault in ("oom", "exception")  # raised inside our own call: the agent takes it
    if ours and moment == "switch":
        return Injection(fault, moment, code=0, refused=True)
    return Injection(fault, moment, code=0, kind="crash" if ours and moment == "answer" else KIND[fault])


INJECTIONS = [
    *(_injection(fault, moment) for moment, fault in product(MOMENTS, FAULTS)),
    Injection("kill-front", "journal", code=-9, resumed=True),
    Injection("full-disk-front", "journal", code=1, resumed=True),
]
BY_NAME = {injection.name: injection for injection in INJECTIONS}
