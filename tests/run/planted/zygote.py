"""Forks one process per request with torch already imported: half a second a training instead of five.

A request is a line of JSON on standard input: the folder to work in, the script's arguments, whether the device is
stood in for, and, where the agent is wanted, its environment and what is planted. The answer is the exit status. The
child ends as any Python does: an uncaught exception is printed, exit handlers run, and the status is its own. Only the
taking apart of the interpreter after that is left out, which takes longer than the training.
"""

import atexit
import contextlib
import gc
import json
import os
import runpy
import signal
import sys
from pathlib import Path

DEADLINE = 100  # seconds, of a training that takes one

ending = {"pid": os.getpid(), "code": 0}


@atexit.register  # before all others, so that it runs after them
def leave_at_once():
    if os.getpid() == ending["pid"]:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ending["code"])


import torch

with contextlib.suppress(RuntimeError):  # torch 2.0 cannot on Python 3.11
    torch.compile(torch.nn.Linear(1, 1), backend="eager")  # compiles nothing yet, and imports what that takes

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import planting
import stand_in_device

sys.path.pop(0)
planting.prepare(sys.argv[1])


def serve():
    """The request that this process is to become; ends with the last one."""
    gc.collect()
    gc.freeze()  # what a child does not touch need not be copied for it
    for line in sys.stdin:
        child = os.fork()
        if not child:
            return json.loads(line)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit(0)


def become(wanted):
    signal.alarm(DEADLINE)  # a fault must not make it wait for ever, either
    os.chdir(wanted["folder"])
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, "../stdout", os.O_WRONLY | os.O_CREAT),
        (2, "../stderr", os.O_WRONLY | os.O_CREAT),
    ):
        os.dup2(os.open(path, flags, 0o644), descriptor)
    os.environ.update(wanted["environ"])
    if wanted["stand_in"]:
        stand_in_device.put_on(torch)
    if "PLANTED_SEEN" in wanted["environ"]:
        planting.begin(wanted["environ"]["PLANTED_INJECT"], planting.plan_of())
    sys.argv = [str(HERE / "train.py"), *wanted["arguments"]]


become(serve())
ending["pid"] = os.getpid()
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    ending["code"] = end.code
    raise
except BaseException:
    ending["code"] = 1
    raise
