"""The checkpoint file: written atomically, read without unpickling any object."""

from __future__ import annotations

import os
import pickle
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

from flatout.api.errors import CheckpointError
from flatout.api.torch_part import torch
from flatout.base.errors import RecordError
from flatout.base.records import Record, upgraded

PLAIN = (str, bytes, bool, int, float, type(None))


class CheckpointRecord(Record):
    """Kind, version and upgrades are held like those of every other record; the body is torch's own format."""

    KIND = "flatout-checkpoint"


def write(path: Path, body: dict[str, Any]) -> None:
    """Beside the old one, to the disk, then in its place: a kill at any moment leaves one of the two."""
    tree = {"kind": CheckpointRecord.KIND, "version": CheckpointRecord.VERSION, **body}
    stranger = _stranger(tree, "")
    if stranger:
        raise CheckpointError("library.checkpoint-value", where=stranger[0], found=stranger[1])
    part = path.with_name(f".{path.name}.part")  # one name, so that what a kill leaves is written over by the next save
    try:
        with open(part, "wb") as file:
            torch.save(tree, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _flush_folder(path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise CheckpointError("error.cannot-write", path=str(path), detail=error.strerror or str(error)) from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read(path: Path) -> dict[str, Any]:
    try:
        tree = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError("library.checkpoint-missing", path=str(path)) from error
    except IsADirectoryError as error:
        raise CheckpointError("error.cannot-read", path=str(path), detail=str(error.strerror)) from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        detail = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise CheckpointError("library.checkpoint-damaged", path=str(path), detail=detail) from error
    try:
        return upgraded(tree, CheckpointRecord, str(path))
    except RecordError as error:
        raise CheckpointError(error.key, **error.params) from error


def _flush_folder(folder: Path) -> None:
    """The new name too must be on the disk. Windows has no such call and does not need it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stranger(thing: Any, where: str) -> tuple[str, str] | None:
    """The first value that could not be read back safely, and its class."""
    if isinstance(thing, torch.Tensor):
        return None if type(thing) in (torch.Tensor, torch.nn.Parameter) else (where, type(thing).__name__)
    if type(thing) in PLAIN or isinstance(thing, torch.dtype | torch.device | torch.Size):
        return None
    if type(thing) in (dict, OrderedDict, Counter):  # a MultiStepLR keeps its milestones in the last
        parts = [(f"{where}.{key}" if where else str(key), part) for key, part in thing.items()]
        odd = next((key for key in thing if type(key) not in PLAIN), None)
        if odd is not None:
            return where, type(odd).__name__
    elif type(thing) in (list, tuple):
        parts = [(f"{where}[{number}]", part) for number, part in enumerate(thing)]
    else:
        return where, type(thing).__name__
    return next(filter(None, (_stranger(part, place) for place, part in parts)), None)
