"""Where a configuration comes from: a `TrainingConfig`, a dict, "auto", a profile, or YAML or JSON in three shapes."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from flatout.api.errors import ConfigurationError
from flatout.api.refusals import unknown_name
from flatout.api.training_config import TrainingConfig
from flatout.base.errors import UnknownNameError, UsageError
from flatout.base.records import Missing
from flatout.knobs import config_keys, profile_file
from flatout.knobs.profile import Profile
from flatout.machine import yaml_file

ConfigSource = TrainingConfig | Mapping[str, Any] | str | Path

# What the documents' configurations and other people's call a field of ours.
# As every configuration calls them (`knobs/config_keys.py`). `fp16: true` names a format, and no switch of ours.
OTHER_NAMES = {
    spelling: {"use_amp": "precision"}.get(key.name, key.name)
    for key in config_keys.KEYS
    for spelling in key.names
    if spelling not in ("fp16", "bf16")
} | {"accumulation_steps": "gradient_accumulation_steps", "memory_fraction": "gpu_memory_fraction"}
SECTIONS = ("train", "training", "optimizer", "dataloader", "dataloader_params", "data", "hardware", "gpu")
MODEL_KEYS = ("base_channels", "num_blocks", "patch_size", "use_perceptual")
NEAR = 0.84  # so alike that only a slip of the hand explains it

FIELDS = [each.name for each in fields(TrainingConfig)]
KNOB_FIELDS = {"compile": "compile_model", "workers": "num_workers"}
KNOBS_KEPT = ("cpu_threads", "gc_policy", "checkpointing")


def read(source: ConfigSource) -> TrainingConfig:
    if isinstance(source, TrainingConfig):
        return source
    if isinstance(source, Mapping):
        return from_tree(source, "config")
    if isinstance(source, str) and source.strip().lower() == "auto":
        return TrainingConfig.auto()
    if isinstance(source, str | Path):
        return _from_file(Path(source))
    raise ConfigurationError("library.config-type", found=type(source).__name__)


def is_profile(source: object) -> bool:
    return isinstance(source, str | Path) and Path(source).suffix.lower() == ".toml"


def read_profile(path: Path) -> Profile:
    try:
        return profile_file.read(path)
    except UnknownNameError:
        raise
    except UsageError as error:
        raise ConfigurationError(error.key, **error.params) from error


def _from_file(path: Path) -> TrainingConfig:
    if is_profile(path):
        return from_profile(read_profile(path).knobs)
    kind = path.suffix.lower()
    if kind not in (".yaml", ".yml", ".json"):
        raise ConfigurationError("library.config-file-kind", path=str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        detail = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError("error.cannot-read", path=str(path), detail=detail) from error
    return from_tree(_parsed(text, kind, str(path)), str(path))


def _parsed(text: str, kind: str, path: str) -> Any:
    if kind == ".json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError("library.config-syntax", path=path, detail=str(error)) from error
    found = yaml_file.read(text)
    if isinstance(found, Missing):
        raise ConfigurationError("library.config-syntax", path=path, detail=found.detail)
    return found[0]


def from_profile(knobs: Mapping[str, str]) -> TrainingConfig:
    wanted: dict[str, Any] = {}
    kept: dict[str, str] = {}
    for name, value in knobs.items():
        target = KNOB_FIELDS.get(name, name)
        if name in KNOBS_KEPT:
            kept[name] = value
        elif target in FIELDS and value != "script":
            wanted[target] = {"on": True, "off": False}.get(value, int(value) if value.isdecimal() else value)
    return TrainingConfig(**wanted, knobs=kept)


def from_tree(tree: Any, where: str) -> TrainingConfig:
    """Flat, nested by sections, or with `dataloader_params`. A key that is nearly one of ours is refused as misspelt; what is
    not about training is the user's own.
    """
    if not isinstance(tree, Mapping):
        raise ConfigurationError("library.config-no-table", where=where, found=type(tree).__name__)
    wanted: dict[str, Any] = {}
    written: dict[str, str] = {}
    own: dict[str, Any] = {}
    for key, value in _leaves(tree):
        name = OTHER_NAMES.get(key, key)
        if name in FIELDS and name != "model":
            if name in wanted and wanted[name] != value:
                raise ConfigurationError("library.config-contradicts", one=written[name], value=wanted[name], other=key)
            wanted[name], written[name] = value, key
            continue
        if key not in MODEL_KEYS and key != "model":
            known = [*FIELDS, *OTHER_NAMES]
            if difflib.get_close_matches(key, known, n=1, cutoff=NEAR):
                raise unknown_name(where, key, known)
        own.update(value if key == "model" and isinstance(value, Mapping) else {key: value})
    try:
        return TrainingConfig(**wanted, model=own)
    except ConfigurationError as error:
        name = str(error.params.get("name", ""))
        raise ConfigurationError(error.key, **{**error.params, "name": written.get(name, name)}) from None


def _leaves(tree: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and key in SECTIONS:
            yield from _leaves(value)
        else:
            yield str(key), value
