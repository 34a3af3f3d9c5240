"""A configuration file: read once, with all that must survive of it; written whole, under the name that it should have."""

from __future__ import annotations

import errno
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flatout.base import records
from flatout.base.errors import UsageError
from flatout.base.file_bytes import bytes_of
from flatout.base.records import Missing, Struct
from flatout.machine import json_file, yaml_file
from flatout.machine.config_tree import SCALAR, Tree

LARGEST = 256 << 10  # bytes; a training's configuration is a hundredth of that
MOST_VALUES = 20_000  # after anchors are spelled out: a few lines can ask for billions
BOM = "\ufeff"

# What PyYAML, and with it most scripts, reads as truth; YAML 1.2 reads words.
OLD_TRUTHS = {word: truth for yes, no in (("yes", "no"), ("on", "off")) for word, truth in ((yes, True), (no, False))}


class Configuration(Struct, kw_only=True):
    path: Path
    json: bool
    bom: bool
    text: str  # without the mark
    tree: Tree

    def reread(self, text: str) -> Tree | Missing:
        return json_file.read(text) if self.json else yaml_file.tree(text)

    def bytes_of(self, text: str) -> bytes:
        return ((BOM if self.bom else "") + text).encode("utf-8")


def read(path: Path) -> Configuration:
    """Or one sentence about what is wrong with it."""
    try:
        text = bytes_of(path, LARGEST).decode("utf-8")
    except FileNotFoundError as error:
        raise UsageError("config-error.not-found", path=str(path)) from error
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise UsageError("config-error.too-large", path=str(path), most=LARGEST >> 10) from error
        raise UsageError("error.cannot-read", path=str(path), detail=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise UsageError("config-error.not-text", path=str(path)) from error
    return parsed(path, text)


def parsed(path: Path, text: str) -> Configuration:
    bom = text.startswith(BOM)
    text = text.removeprefix(BOM)
    is_json = path.suffix.lower() == ".json"
    tree = json_file.read(text) if is_json else yaml_file.tree(text)
    if isinstance(tree, Missing):
        raise UsageError(f"config-error.{tree.reason}", path=str(path), detail=tree.detail)
    if not isinstance(tree.value, dict):
        raise UsageError("config-error.no-mapping", path=str(path))
    try:
        too_much = any(count > MOST_VALUES for count, _ in enumerate(_walk(tree.value, ())))
    except RecursionError:
        too_much = True
    if too_much:
        raise UsageError("config-error.repeats", path=str(path))
    return Configuration(path=path, json=is_json, bom=bom, text=text, tree=tree)


def _walk(value: Any, above: tuple[int, ...]) -> Iterator[None]:
    """One for every value, those that aliases repeat each time. What contains itself has no end."""
    yield
    if not isinstance(value, dict | list):
        return
    if id(value) in above:
        raise RecursionError
    for inner in value.values() if isinstance(value, dict) else value:
        yield from _walk(inner, (*above, id(value)))


def as_the_script_reads(configuration: Configuration, tree: Tree) -> dict[str, Any]:
    """The values, with `yes` and `off` as PyYAML reads them: a script that asks `if cfg["use_amp"]` must not get a word."""
    value = unshared(tree.value)
    assert isinstance(value, dict)
    for entry in tree.entries:
        if configuration.json or entry.kind != SCALAR or entry.quote or entry.tag or entry.text.lower() not in OLD_TRUTHS:
            continue
        holder: Any = value
        for part in entry.path[:-1]:
            holder = holder[int(part)] if isinstance(holder, list) else holder.get(part, {})
        truth = OLD_TRUTHS[entry.text.lower()]
        if isinstance(holder, list):
            holder[int(entry.path[-1])] = truth
        elif entry.path[-1] in holder:
            holder[entry.path[-1]] = truth
    return value


def unshared(value: Any) -> Any:
    """A copy in which nothing is the same object twice."""
    if isinstance(value, dict):
        return {name: unshared(inner) for name, inner in value.items()}
    return [unshared(inner) for inner in value] if isinstance(value, list) else value


def target_of(source: Path) -> Path:
    """`lightweight_config.yaml` -> `lightweight_gpu_optimized.yaml` -> `lightweight_gpu_optimized_optimized.yaml`."""
    stem, suffix = source.stem, source.suffix
    if stem.endswith("_optimized"):
        return source.with_name(f"{stem}_optimized{suffix}")
    return source.with_name(f"{stem.removesuffix('_config')}_gpu_optimized{suffix}")


def check_target(source: Path, target: Path, may_replace: bool) -> None:
    """Before anything is measured: a name that can be written, and nothing of the user's lost."""
    try:
        _check_target(source, target, may_replace)
    except OSError as error:
        raise UsageError("error.cannot-write", path=str(target), detail=error.strerror or str(error)) from error


def _check_target(source: Path, target: Path, may_replace: bool) -> None:
    if target.is_symlink():
        raise UsageError("config-error.target-link", path=str(target), target=str(target.resolve()))
    if target.is_dir() or not target.parent.is_dir():
        raise UsageError("config-error.target-folder", path=str(target))
    if target.exists():
        if target.samefile(source):
            raise UsageError("config-error.target-source", path=str(target))
        # A copy of the source, from when nothing was to be changed, holds nothing that could be lost.
        if not may_replace and target.read_bytes() != source.read_bytes():
            raise UsageError("config-error.target-exists", path=str(target))
    with tempfile.TemporaryFile(dir=target.parent):
        pass
    if (target.suffix.lower() == ".json") != (source.suffix.lower() == ".json"):
        raise UsageError("config-error.target-format", path=str(target), suffix=source.suffix)


def write(configuration: Configuration, target: Path, text: str) -> None:
    try:
        # Who may not read the one may not read the other.
        records.write_bytes(target, configuration.bytes_of(text), configuration.path.stat().st_mode & 0o666)
    except OSError as error:
        raise UsageError("error.cannot-write", path=str(target), detail=error.strerror or str(error)) from error


def shown(value: Any) -> str:
    """A value for the table: as JSON writes it, words without quotes; what JSON cannot hold, as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
