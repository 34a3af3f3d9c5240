"""Where the known keys stand in a configuration, whatever its shape; and what cannot be told is said, not guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from flatout.base.errors import UsageError
from flatout.base.records import Struct
from flatout.knobs import config_keys
from flatout.machine.config_tree import MAPPING, SEQUENCE, Entry, Path
from flatout.machine.script_config import EVALUATION
from flatout.tune.config.config_file import Configuration

# Of two places that say the same, the one that feeds the training.
TRAINING = re.compile(r"train|loader|data|loading", re.I)


class Found(Struct, frozen=True, kw_only=True):
    """`entry` is None where the key stands nowhere, or in several places alike (`several`)."""

    key: config_keys.Key
    entry: Entry | None = None
    path: Path = ()
    merged: bool = False  # the value comes from a merge (`<<`): it is set by a line of its own
    several: tuple[str, ...] = ()


def own_keys(configuration: Configuration, written: Mapping[str, str] | None) -> dict[str, Path]:
    """`{"batch_size": "train.bs"}`: what the user calls a known key, as its place in the file."""
    found: dict[str, Path] = {}
    for name, place in (written or {}).items():
        if name not in config_keys.BY_NAME or not place:
            raise UsageError("config-error.key", name=name, known=", ".join(config_keys.BY_NAME))
        entry = next((one for one in configuration.tree.entries if ".".join(one.path) == place), None)
        if entry is None or not configuration.tree.has(entry.path):
            raise UsageError("config-error.key-missing", path=str(configuration.path), place=place)
        found[name] = entry.path
    return found


def find(configuration: Configuration, name: str, own: Mapping[str, Path]) -> Found:
    key = config_keys.BY_NAME[name]
    if name in own:
        return Found(key=key, entry=configuration.tree.at(own[name]), path=own[name])
    return one_of(configuration, key)


def one_of(configuration: Configuration, key: config_keys.Key) -> Found:
    places = [entry for entry in configuration.tree.entries if _names(key, entry) and configuration.tree.has(entry.path)]
    merged = _merged(configuration, key) if len(places) != 1 or places[0].shared else []
    best = _best([*(place.path for place in places), *merged])
    if len(best) != 1:
        return Found(key=key, several=tuple(".".join(path) for path in best))
    entry = next((place for place in places if place.path == best[0]), None)
    return Found(key=key, entry=entry, path=best[0], merged=entry is None)


def _names(key: config_keys.Key, entry: Entry) -> bool:
    if entry.key_start < 0 or entry.kind in (MAPPING, SEQUENCE) or any(EVALUATION.search(part) for part in entry.path):
        return False
    return config_keys.plain(entry.path[-1]) in key.names


def _merged(configuration: Configuration, key: config_keys.Key) -> list[Path]:
    """Mappings that have the key only through `<<`."""
    holders = {entry.path[:-1] for entry in configuration.tree.entries if entry.path[-1] == "<<" and not entry.shared}
    found = []
    for holder in holders:
        value = configuration.tree.value
        for part in holder:
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, dict) and not any(EVALUATION.search(part) for part in holder):
            found += [(*holder, name) for name in value if isinstance(name, str) and config_keys.plain(name) in key.names]
    return [path for path in found if configuration.tree.at(path) is None]


def _best(paths: list[Path]) -> list[Path]:
    """Those in a section that feeds the training go before the others; of these, the outermost."""
    if len(paths) < 2:
        return paths
    feeding = [path for path in paths if any(TRAINING.search(part) for part in path[:-1])]
    chosen = feeding or paths
    depth = min(len(path) for path in chosen)
    return [path for path in chosen if len(path) == depth]


def explored(configuration: Configuration, name: str, own: Mapping[str, Path]) -> Entry:
    """Any key of the file, known or not: by its name in the table, its name in the file, or its path."""
    if name in own or name in config_keys.BY_NAME:
        found = find(configuration, name, own)
        if found.entry is not None:
            return found.entry
    tree = configuration.tree
    places = [one for one in tree.entries if one.key_start >= 0 and f".{'.'.join(one.path)}".endswith(f".{name}")]
    if len(places) != 1 or not tree.has(places[0].path):
        raise UsageError("config-error.explore-key", place=name, path=str(configuration.path), count=len(places))
    return places[0]
