"""What an overlay refuses is named, and the script is not called faulty."""

import os
import subprocess
import sys

import pytest

from flatout.base.words import LANGUAGES, Words
from flatout.launch.overlay_limits import LIMITS, met


@pytest.mark.parametrize(
    ("said", "code", "path"),
    [
        ("Traceback …\nOSError: [Errno 18] Invalid cross-device link: 'runs/a' -> 'runs/b'", "overlay-rename", "runs/a"),
        ("OSError: [Errno 30] Read-only file system: '/mnt/share/log.txt'\n", "overlay-read-only", "/mnt/share/log.txt"),
        ("touch: cannot touch '/data/x': Value too large for defined data type", "overlay-owner", "/data/x"),
        ("OSError: [Errno 28] No space left on device", "overlay-room", "?"),
        ("flatout: the trial was not started: EPERM unshare", "overlay-start", "?"),
    ],
)
def test_every_limit_has_its_sentence(said, code, path):
    found = met(said)
    assert found is not None
    assert (found[0], found[1]["path"]) == (code, path)
    for language in LANGUAGES:
        assert Words(language)(f"tune-nothing.{code}", **found[1])


def test_what_the_script_said_before_its_end_is_not_what_ended_it():
    assert met("[Errno 30] Read-only file system: 'x'\n1\n2\n3\nValueError: 7") is None
    assert met("") is None
    assert len(LIMITS) == 5


def test_a_folder_that_was_there_is_renamed_or_the_limit_is_named(tmp_path, overlay_for):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log").touch()
    command = overlay_for(tmp_path).wrap([sys.executable, "-c", "import os; os.rename('run', 'older')"])
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if ended.returncode:
        assert met(ended.stderr) is not None
        assert met(ended.stderr)[0] == "overlay-rename"
    assert (tmp_path / "run" / "log").exists()
