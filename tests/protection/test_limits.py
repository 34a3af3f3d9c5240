"""What an overlay refuses is named, and the script is not called faulty."""

import json
import os
import subprocess
import sys

import pytest

from flatout.base.words import LANGUAGES, Words
from flatout.launch import overlay
from flatout.launch.overlay_limits import LIMITS, met


@pytest.mark.parametrize(
    ("said", "code", "path"),
    [
        ("Traceback …\nOSError: [Errno 18] Invalid cross-device link: 'runs/a' -> 'runs/b'", "overlay-rename", "runs/a"),
        ("OSError: [Errno 30] Read-only file system: '/mnt/share/log.txt'\n", "overlay-read-only", "/mnt/share/log.txt"),
        ("touch: cannot touch '/data/x': Value too large for defined data type", "overlay-owner", "/data/x"),
        ("OSError: [Errno 28] No space left on device", "overlay-room", "?"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/big'", "overlay-shared-memory", "/dev/shm/big"),
        (
            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers "
            "are out of shared memory.",
            "overlay-shared-memory",
            "?",
        ),
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
    assert len(LIMITS) == 6


def told(found, path):
    """The sentence of a limit, in every language."""
    assert found is not None
    for language in LANGUAGES:
        sentence = Words(language)(f"tune-nothing.{found[0]}", **found[1])
        assert str(path) in sentence
    return found[0]


def test_a_place_that_trials_do_not_see_is_named(tmp_path):
    """`report.json` tells of it; a file that is not there outside either is the script's own matter."""
    hidden, reading, report = tmp_path / "fuse", tmp_path / "share", tmp_path / "scratch"
    for folder in (hidden, reading, report):
        folder.mkdir()
    (hidden / "data.pt").touch()
    (tmp_path / "link").symlink_to(hidden)
    places = {"missing": [str(hidden)], "read_only": [str(reading)], "layers": {}, "shared_memory": 1 << 30}
    (report / "report.json").write_text(json.dumps(places), encoding="ascii")

    def of(said):
        return met(f"Traceback\n  File 'train.py', line 1\n{said}", report)

    for said in (
        f"FileNotFoundError: [Errno 2] No such file or directory: '{hidden}/data.pt'",
        f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/link/data.pt'",
        f"PermissionError: [Errno 13] Permission denied: '{hidden}/new.pt'",
        f"RuntimeError: {hidden}/data.pt does not exist",
    ):
        assert told(of(said), hidden) == "overlay-hidden", said
    assert told(of(f"PermissionError: [Errno 13] Permission denied: '{reading}/x'"), reading) == "overlay-hidden"
    for said in (
        f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/nothing'",
        f"FileNotFoundError: [Errno 2] No such file or directory: '{hidden}/no/such/folder/x'",
        f"FileNotFoundError: [Errno 2] No such file or directory: '{reading}/x'",
    ):
        assert of(said) is None, said


def test_a_file_for_another_group_is_not_the_scripts_fault(tmp_path, overlay_for):
    found = met("  File 't.py', line 1\n    os.chown('a', -1, 27)\nOSError: [Errno 22] Invalid argument: 'a'")
    assert told(found, "Invalid argument: 'a'") == "overlay-group"
    assert met("chgrp: changing group of 'a': Invalid argument") is not None
    assert met("OSError: [Errno 22] Invalid argument: 'a'") is None  # of a name that is none, or a seek
    (tmp_path / "a").touch()
    held = overlay_for(tmp_path)
    code = "import os\nos.chown('a', -1, 12345)"
    ended = subprocess.run(held.wrap([sys.executable, "-c", code]), capture_output=True, text=True, check=False)
    if "user" in held._namespaces:
        assert held.limit_met(f"    {code}\n{ended.stderr}")[0] == "overlay-group"


def test_shared_memory_is_no_larger_than_what_is_free(tmp_path, overlay_for, monkeypatch):
    monkeypatch.setattr(overlay, "_memory_share", lambda: 3 << 20)
    text = """
import os
told = os.statvfs("/dev/shm")
print(told.f_blocks * told.f_frsize)
open("/dev/shm/big", "wb").write(bytes(4 << 20))
"""
    held = overlay_for(tmp_path)
    command = held.wrap([sys.executable, "-c", text])
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert int(ended.stdout) == 3 << 20
    found = held.limit_met(ended.stderr + "\nOSError: [Errno 28] No space left on device: '/dev/shm/big'")
    assert told(found, "0.0 GiB") == "overlay-shared-memory"


# Nothing can be laid over an overlay of an overlay: as over some network file systems.
STACKED = """
set -e
mount -t tmpfs none "$1"
cd "$1"
mkdir -p a b c 1 2 3 4 disk lower
touch lower/kept
mount -t overlay none -o lowerdir=lower,upperdir=1,workdir=2 a
mount -t overlay none -o lowerdir=a,upperdir=3,workdir=4 disk
shift
exec "$@"
"""
ON_STACKED = """
import os, subprocess, sys
from pathlib import Path
from flatout.launch.overlay import Overlay
os.chdir(sys.argv[1])
with Overlay([sys.executable], [Path.cwd()], dict(os.environ), False) as held:
    if not held.ready:
        sys.exit(5)
    for code in ("print(open('disk/kept').read())", "open('disk/new', 'w')", "open('disk/kept', 'a')"):
        ended = subprocess.run(held.wrap([sys.executable, "-c", code]), capture_output=True, text=True)
        print(ended.returncode, held.limit_met(ended.stderr), ended.stderr[-300:].replace(chr(10), " "))
print(sorted(os.listdir("disk")))
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can mount")
def test_where_no_overlay_can_be_laid_trials_only_read(tmp_path):
    line = ["unshare", "-m", "sh", "-c", STACKED, "sh", str(tmp_path), sys.executable, "-c", ON_STACKED, str(tmp_path)]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    if ended.returncode in (1, 5, 32):
        pytest.skip("no mounts here")
    assert ended.returncode == 0, ended.stderr
    reading, new, kept, names = ended.stdout.splitlines()
    assert reading.startswith("0 None"), reading
    for said in (new, kept):
        assert said.startswith("1 ('overlay-read-only'"), said
    assert names == "['kept']"


def test_a_folder_that_was_there_is_renamed_or_the_limit_is_named(tmp_path, overlay_for):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log").touch()
    command = overlay_for(tmp_path).wrap([sys.executable, "-c", "import os; os.rename('run', 'older')"])
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if ended.returncode:
        assert met(ended.stderr) is not None
        assert met(ended.stderr)[0] == "overlay-rename"
    assert (tmp_path / "run" / "log").exists()
