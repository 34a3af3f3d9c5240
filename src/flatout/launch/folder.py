"""`.flatout/runs/<id>`: the folder of a run's records, in the working folder or where the user wants it."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from flatout.base.errors import FlatoutError, UsageError

HOME = ".flatout"
VARIABLE = "FLATOUT_RECORDS"
SETTING = "records"  # in the user's settings file; the variable counts more

HERE, STATE = "here", "state"  # or an absolute path

# A job is smaller than this: where it does not fit, nothing will.
ROOM = 1024


class NoPlaceForRecordsError(FlatoutError):
    """Neither folder can be written, or both disks are full: the script can still run, unobserved."""


def new_run(base: Path, now: float, environ: Mapping[str, str] = os.environ) -> tuple[str, Path]:
    """(id, folder), where records of the working folder `base` go; where that cannot be written, in the temporary folder."""
    run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{secrets.token_hex(2)}"
    # Called inside: asking for the temporary folder fails too where nothing can be written.
    places: tuple[Callable[[], Path], ...] = (
        lambda: records_of(base, environ),
        lambda: Path(tempfile.mkdtemp(prefix="flatout-records-")) / HOME,  # a name of its own: others share that folder
    )
    for place in places:
        try:
            return run_id, _make(place(), run_id)
        except OSError as error:
            problem = error
    raise NoPlaceForRecordsError("error.no-place-for-records", detail=problem.strerror or str(problem))


def records_of(base: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that holds `runs` for whatever is started in `base`."""
    wanted = environ.get(VARIABLE) or _from_settings(environ) or HERE
    base = base.resolve()
    if wanted == HERE:
        return base / HOME
    root = state_folder(environ) if wanted == STATE else Path(os.path.expanduser(wanted))
    if not root.is_absolute() or "\0" in wanted:
        raise UsageError("error.records-place", value=wanted)
    # One folder for each working folder: an earlier run of the same command is looked for there.
    return root / f"{base.name}-{hashlib.sha256(os.fsencode(base)).hexdigest()[:8]}"


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """What flatout keeps for this user on this machine, whatever the working folder. An OSError where there is no home."""
    return _base(environ, "XDG_STATE_HOME", ".local/state") / "flatout"


def settings_file(environ: Mapping[str, str] = os.environ) -> Path:
    return _base(environ, "XDG_CONFIG_HOME", ".config") / "flatout" / "settings.toml"


def _from_settings(environ: Mapping[str, str]) -> str | None:
    try:
        text = settings_file(environ).read_bytes()
    except OSError:  # there is none; or there is no home
        return None
    try:
        tree = tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError("error.settings-file", path=str(settings_file(environ)), detail=str(error)) from error
    wanted = tree.get(SETTING)
    if wanted is None:
        return None
    if not isinstance(wanted, str):
        raise UsageError("error.records-place", value=str(wanted))
    return wanted


def _base(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    """An OSError where there is none: a user number without a name, in a container, has no home."""
    named = environ.get(variable, "")
    if os.path.isabs(named):
        return Path(named)
    try:
        return Path.home() / below_home
    except RuntimeError as error:
        raise FileNotFoundError(errno.ENOENT, str(error)) from error


def _check_owner(folder: Path) -> None:
    """In a folder that many write to somebody may have put it there, or a link in its place, for what we write to land."""
    try:
        there, around = folder.lstat(), folder.parent.stat()
    except OSError:
        return  # it is made in a moment
    if os.name != "posix" or there.st_uid in (os.geteuid(), around.st_uid, 0):
        return
    if stat.S_ISLNK(there.st_mode) or around.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NoPlaceForRecordsError("error.records-of-another", path=str(folder), detail=f"{folder}: uid {there.st_uid}")


def _make(home: Path, run_id: str) -> Path:
    _check_owner(home)
    _check_owner(home / "runs")  # a group that may write here may write there
    folder = home / "runs" / run_id
    folder.mkdir(parents=True)
    ignore = home / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="ascii")  # records are the machine's, not the repository's
    room = folder / ".room"
    room.write_bytes(b" " * ROOM)
    room.unlink()
    return folder
