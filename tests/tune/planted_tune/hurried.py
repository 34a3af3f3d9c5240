"""`flatout` as it is, in a hurry: segments of a twentieth of a second, and six seconds of doing nothing are a hang.
Trials may write into the folder `INJECT_NOTES`, too.

With `INJECT_FRONT` the front itself is struck while it writes the line of so many segments: `kill:5` by SIGKILL in the middle
of the line, `full-disk:5` by a disk on which only half of it fits.
"""

import os
import signal
import sys
from pathlib import Path

from flatout.base import records
from flatout.cli.main import main
from flatout.launch.overlay import Overlay
from flatout.tune.execution import child_time_limits
from flatout.tune.search import what_to_try

child_time_limits.IDLE_S = 6.0
make = what_to_try.make
what_to_try.make = lambda *given, **limits: records.replace(make(*given, **limits), timed_s=0.05)

share = Overlay.share


def share_the_notes_too(overlay, folder):
    share(overlay, folder)
    share(overlay, Path(os.environ["INJECT_NOTES"]))


Overlay.share = share_the_notes_too

how, _, number = os.environ.get("INJECT_FRONT", "").partition(":")
written = os.write
lines = 0


def fill(folder, left):
    """But for so many bytes, as a file system counts: half of the line's page may be there already."""
    with open(Path(folder) / "ballast", "ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


def write(descriptor, data):
    global lines
    if data.startswith(b'{"kind":"tune-line"'):
        lines += 1
        if lines == int(number):
            if how == "kill":
                written(descriptor, data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            fill(os.path.dirname(os.readlink(f"/proc/self/fd/{descriptor}")), 0)
    return written(descriptor, data)


if how:
    os.write = write
sys.argv[0] = "flatout"
main()
