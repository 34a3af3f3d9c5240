"""Wishes put into a configuration: each value in the words, the quotes and the family of names that the file already uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flatout.base.records import Struct
from flatout.knobs.config_keys import BY_NAME, Key, Kind, plain
from flatout.machine.config_tree import ALIAS, Entry, Path, Tree
from flatout.tune.config import known_keys, splice
from flatout.tune.config.config_file import Configuration
from flatout.tune.config.known_keys import Found
from flatout.tune.config.splice import Edit
from flatout.tune.config.wishes import Change, State, Wish

# (false, true) as people write them; the pair that is there is kept, capitals included.
SPELLINGS = tuple(
    (style(no), style(yes))
    for no, yes in (("false", "true"), ("no", "yes"), ("off", "on"), ("0", "1"))
    for style in (str.lower, str.capitalize, str.upper)
)

# What full precision, fp16 and bf16 are called: Accelerate, Lightning (new and old), torch, others.
FAMILIES = (
    ("no", "fp16", "bf16"),
    ("32-true", "16-mixed", "bf16-mixed"),
    ("32", "16-mixed", "bf16-mixed"),
    ("float32", "float16", "bfloat16"),
    ("fp32", "fp16", "bf16"),
)
PRECISIONS = ("no", "fp16", "bf16")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
EMPTY = ("", "~", "null", "Null", "NULL")
DEFAULTS = {"prefetch_factor": 2}  # what torch does anyway: not worth a line of its own
NEED_WORKERS = ("persistent_workers", "prefetch_factor")
WHOLE = re.compile(r"[-+]?[0-9][0-9_]*")
DECIMAL = re.compile(r"[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?|[0-9]+\.")

Naming = Callable[[Key], "str | None"]  # under which name a missing key may be inserted; None: not at all


class Applied(Struct, kw_only=True):
    text: str
    tree: Tree
    changes: list[Change]


def apply(configuration: Configuration, wishes: Sequence[Wish], own: Mapping[str, Path], naming: Naming) -> Applied:
    changes: list[Change] = []
    edits: list[Edit] = []
    for wish in wishes:
        if wish.key in NEED_WORKERS and not _has_workers(configuration, changes, own):
            continue
        found = known_keys.find(configuration, wish.key, own)
        change, edit = _one(configuration, wish, found, own, naming)
        if change is not None:
            changes.append(change)
        if edit is not None:
            edits.append(edit)
    text, tree = splice.checked(configuration, edits)
    new = {".".join(edit.path): value_at(tree, edit.path) for edit in edits if edit.inserted}
    for change in changes:
        change.after = new.get(change.path, change.after)  # as it was written: true, where "bf16" was wished for
    return Applied(text=text, tree=tree, changes=changes)


def _has_workers(configuration: Configuration, changes: Sequence[Change], own: Mapping[str, Path]) -> bool:
    """A loader without workers refuses to hear of what they should do."""
    wanted = next((change for change in changes if change.key == "num_workers"), None)
    if wanted is not None and wanted.state is not State.LEFT:
        return bool(wanted.after)
    found = known_keys.find(configuration, "num_workers", own)
    return bool(found.path) and bool(value_at(configuration.tree, found.path))


def _one(
    configuration: Configuration, wish: Wish, found: Found, own: Mapping[str, Path], naming: Naming
) -> tuple[Change | None, Edit | None]:
    def row(state: State, code: str = "", **more: Any) -> Change:
        params = {**wish.params, "places": ", ".join(found.several)} if code == "several-places" else wish.params
        path = ".".join(more.pop("path", found.path))
        numerics = found.key.numerics
        return Change(
            key=wish.key, path=path, state=state, how=wish.how, code=code or wish.code, params=params, numerics=numerics, **more
        )

    if found.several:
        return row(State.LEFT, "several-places"), None
    before = value_at(configuration.tree, found.path) if found.path else None
    if wish.value is None:
        return (row(State.LEFT, before=before) if found.path else None), None
    if found.entry is None:
        edit = _insertion(configuration, wish, found, own, naming)
        if edit is None:
            return (row(State.LEFT, "nowhere") if found.merged else None), None
        return row(State.INSERTED, path=edit.path, before=before, after=wish.value), edit
    written = words_for(found.key, wish.value, found.entry, configuration)
    if written is None:
        return row(State.LEFT, "other-words", before=before), None
    if found.entry.kind != ALIAS and written == configuration.text[found.entry.start : found.entry.end]:
        return row(State.ALREADY, before=before, after=before), None
    edit = splice.replaced(configuration, found.entry, written)
    if edit is None:
        return row(State.LEFT, "shared" if found.entry.shared else "other-words", before=before), None
    return row(State.CHANGED, before=before, after=_understood(written)), edit


def _insertion(configuration: Configuration, wish: Wish, found: Found, own: Mapping[str, Path], naming: Naming) -> Edit | None:
    written = str(wish.value).lower() if isinstance(wish.value, bool) else str(wish.value)
    if found.merged:
        beside = [entry for entry in configuration.tree.inside(found.path[:-1]) if entry.key_start >= 0]
        name: str | None = found.path[-1]
    else:
        name = naming(found.key)
        siblings = (known_keys.find(configuration, sibling, own) for sibling in found.key.beside)
        beside = [place.entry for place in siblings if place.entry is not None]
    if name is None or DEFAULTS.get(found.key.name) == wish.value:
        return None
    if found.key.kind in (Kind.PRECISION, Kind.COMPILE):
        if wish.value not in ("bf16", "fp16", "default", True):
            return None
        written = "true"  # a mode of compiling has no switch of its own
    taken = {entry.path[:-1] for entry in configuration.tree.entries if plain(entry.path[-1]) in found.key.names}
    free = [entry for entry in beside if entry.path[:-1] not in taken]  # a list may stand there under this name
    edits = (splice.inserted(configuration, entry, name, written) for entry in free)
    return next((edit for edit in edits if edit is not None), None)


def words_for(key: Key, value: bool | int | str, entry: Entry, configuration: Configuration) -> str | None:
    """The value as this file would write it; None where what stands there is nothing that we understand."""
    old = value_text(entry, configuration)
    if old is None:
        return None
    if key.kind is Kind.NUMBER:
        fits = (WHOLE.fullmatch(old) or old in EMPTY) and isinstance(value, int)
        return _quoted(entry, str(value)) if fits else None
    if key.kind is Kind.DECIMAL:
        return _quoted(entry, str(value)) if DECIMAL.fullmatch(old) and DECIMAL.fullmatch(str(value)) else None
    if key.kind is Kind.PRECISION:
        return _precision(entry, old, str(value), configuration)
    if key.kind is Kind.COMPILE and old in MODES:
        return _quoted(entry, str(value)) if value in MODES else None
    if key.kind in (Kind.SWITCH, Kind.COMPILE):
        truth = {"default": True, "no": False}.get(value) if isinstance(value, str) else bool(value)
        return None if truth is None else _switch(entry, old, truth)
    return None


def _precision(entry: Entry, old: str, value: str, configuration: Configuration) -> str | None:
    name = entry.path[-1].lower()
    if name in PRECISIONS:  # `bf16: false` is a switch for this one precision
        return _switch(entry, old, value == name)
    spoken = "no" if value not in PRECISIONS else value
    # `mixed_precision: no` is Accelerate's word, though YAML 1.1 reads a truth; `use_amp: no` is a truth.
    family = None if old == "no" and name.startswith("use") else next((one for one in FAMILIES if old in one), None)
    if family is None:
        return _switch(entry, old, spoken != "no")
    word = family[PRECISIONS.index(spoken)]
    bare = not entry.quote and configuration.json and not WHOLE.fullmatch(word)
    return f'"{word}"' if bare else _quoted(entry, word)


def _switch(entry: Entry, old: str, truth: bool) -> str | None:
    if old in EMPTY:
        return _quoted(entry, "true" if truth else "false")
    pair = next((pair for pair in SPELLINGS if old in pair), None)
    return None if pair is None else _quoted(entry, pair[truth])


def _quoted(entry: Entry, word: str) -> str:
    return f"{entry.quote}{word}{entry.quote}"


def value_text(entry: Entry, configuration: Configuration) -> str | None:
    """What a scalar says; an alias, what its anchor says."""
    if entry.kind != ALIAS:
        return entry.text if entry.kind == "scalar" else None
    anchored = next((one for one in configuration.tree.entries if one.anchor == entry.text and one.kind == "scalar"), None)
    return anchored.text if anchored is not None and not anchored.quote else None


def value_at(tree: Tree, path: Path) -> Any:
    value = tree.value
    for part in path:
        if isinstance(value, list):
            value = value[int(part)]
        else:
            value = next((inner for name, inner in value.items() if str(name) == part), None)
    return value


def _understood(written: str) -> Any:
    """For the table and the record: truths and numbers as such."""
    word = written.strip("'\"")
    if word != written:
        return word
    if WHOLE.fullmatch(word):
        return int(word)
    if DECIMAL.fullmatch(word):
        return float(word)
    return {"true": True, "false": False}.get(word.lower(), word)


def insertable(json: bool) -> Naming:
    """Without a script to look into: the names of the documents that these shapes come from."""

    def name(key: Key) -> str | None:
        if not key.beside:
            return None
        return "use_mixed_precision" if key is BY_NAME["use_amp"] and not json else key.name

    return name


def read_by(sources: Sequence[str]) -> Naming:
    """With its source at hand: only what the script names."""

    def name(key: Key) -> str | None:
        if not key.beside:
            return None
        return next((word for word in key.names if any(re.search(rf"\b{word}\b", text) for text in sources)), None)

    return name
