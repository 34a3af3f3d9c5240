"""`auto_optimize_config`: a training's configuration in, an optimised one out, and its values as a dict."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flatout.api.errors import ConfigurationError
from flatout.api.refusals import path_of, unknown_name
from flatout.base.errors import FlatoutError, UnknownNameError
from flatout.knobs import config_keys
from flatout.tune.config import changed_values, config_file, estimate, known_keys, machine_facts


def auto_optimize_config(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    command: Sequence[str] | None = None,
    preset: str = estimate.USUAL,
    card: str | None = None,
    keys: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write an optimised copy of a YAML or JSON configuration and return its values.

    `target` is written over if it is there; without it the file gets its usual name (`x_config.yaml` gives
    `x_gpu_optimized.yaml`), which must be free. The original is never changed.

    Without `command` the values are estimates for this machine (or for `card`). With it, `["python", "main.py",
    "--config", "{config}"]`, they are measured: `flatout tune` runs the script in trials and says on standard error
    what it finds. `keys` tells what the file calls a known key: `{"batch_size": "train.bs"}`.
    Raises UnknownNameError for a key, preset or card that does not exist, else ConfigurationError, a ValueError, with one
    sentence where something is wrong.
    """
    _check_names(preset, keys)
    path = path_of("source", source)
    if target is not None:
        target = path_of("target", target)
    try:
        if command is not None:
            return _measured(path, target, command, keys)
        return _estimated(path, target, preset, card, keys)
    except FlatoutError as error:
        kind = UnknownNameError if error.key == "config-error.card" else ConfigurationError
        raise kind(error.key, **error.params) from error


def _check_names(preset: str, keys: Mapping[str, str] | None) -> None:
    if preset not in estimate.PRESETS:
        raise unknown_name("preset", str(preset), estimate.PRESETS)
    for name in keys or {}:
        if name not in config_keys.BY_NAME:
            raise unknown_name("keys", str(name), config_keys.BY_NAME)


def _estimated(
    path: Path, target: str | os.PathLike[str] | None, preset: str, card: str | None, keys: Mapping[str, str] | None
) -> dict[str, Any]:
    configuration = config_file.read(path)
    own = known_keys.own_keys(configuration, keys)
    place = Path(target) if target is not None else config_file.target_of(path)
    config_file.check_target(path, place, may_replace=target is not None)
    facts = machine_facts.facts(os.environ, card, None if card else sys.executable)
    naming = changed_values.insertable(configuration.json)
    applied = changed_values.apply(configuration, estimate.wishes(facts, preset), own, naming)
    config_file.write(configuration, place, applied.text)
    return config_file.as_the_script_reads(configuration, applied.tree)


def _measured(
    path: Path, target: str | os.PathLike[str] | None, command: Sequence[str], keys: Mapping[str, str] | None
) -> dict[str, Any]:
    """By the command itself, in a process of its own: a search belongs into no training's process."""
    place = Path(target) if target is not None else config_file.target_of(path)
    words = ["--config", str(path)]
    if target is not None:
        words += ["-o", str(target)]
    words += [word for name, key in (keys or {}).items() for word in ("--key", f"{name}={key}")]
    line = [sys.executable, "-m", "flatout", "tune", *words, "--", *command]
    ended = subprocess.run(line, stdin=subprocess.DEVNULL, check=False)
    if ended.returncode:
        raise ValueError(f"flatout tune: exit {ended.returncode}")
    configuration = config_file.read(place)
    return config_file.as_the_script_reads(configuration, configuration.tree)
