"""What a trial's script finds as its standard input."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="terminals are POSIX's")

FRONT = """
import subprocess, sys
from flatout.launch.trial_terminal import TrialInput
asks = "import sys; print(sys.stdin.isatty(), repr(sys.stdin.read()), repr(sys.stdin.read()))"
for command in (["stty", "size"], [sys.executable, "-c", asks]):
    given = TrialInput()
    child = subprocess.Popen(command, stdin=given.descriptor, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    given.started()
    print(child.communicate(timeout=20)[0].strip())
    given.close()
"""


def said(stdin):
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    ended = subprocess.run(
        [sys.executable, "-c", FRONT], stdin=stdin, env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    return ended.stdout.splitlines()


def test_where_the_user_has_a_terminal_the_script_has_one_that_gives_nothing_to_read():
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    try:
        size, read = said(theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    rows, columns = (int(number) for number in size.split())
    assert rows > 0
    assert columns > 0
    assert read == "True '' ''"


def test_without_a_terminal_there_is_none():
    _, read = said(subprocess.DEVNULL)
    assert read == "False '' ''"
