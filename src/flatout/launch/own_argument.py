"""Finds the script's own argument for batch size, learning rate or length, its value, and how to set another one.

Asked in this order: the user (`--batch-arg`), the command line as it is, the script's source, and what it prints for `--help`.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flatout.base.records import Missing, Struct
from flatout.launch import target
from flatout.machine import probe_host, script_ast
from flatout.machine.script_options import Option, declared, helped, reads_a_command_line

# Names of the same thing, the surest first. Dashes, dots and capitals do not count.
BATCH = (
    r"batch_?size",
    r"(train|training)_batch_?size|batch_?size_train",
    r"per_(device|gpu)_(train_)?batch_?size",
    r"(.+_)?(mini|micro)?_?batch_?size(_per_(gpu|device))?",
    r"(mini_?)?batch|bs|bsz",
    r"b",
)
RATE = (r"lr|learning_rate", r"(base|init|initial|peak|max)_(lr|learning_rate)", r"(.+_)?(lr|learning_rate)")
# How many steps it trains for. In a trial epochs do not end: this alone makes a script last.
LENGTH = (
    r"(max|num|n|total|train|training)_?(train_?)?(steps|iters|iterations|updates)",
    r"(.+_)?max_?(steps|iters|iterations|updates)",
    r"steps|iters|iterations|updates",
)
EPOCHS = (r"(max|num|n|no|total|train|training)_?(of_)?(train_?|training_?)?epochs?", r"epochs?", r"(.+_)?epochs", r"ep|e")
NOT_EPOCHS = re.compile(
    r"warm|start|begin|resume|first|save|log|print|every|per|decay|sched|step|patience|stop|freq|interval|_lr", re.I
)
NOT_LENGTHS = re.compile(r"warm|accum|log|save|print|every|per|decay|sched|grad|freq|interval", re.I)
EVALUATION = re.compile(r"(^|[-_.])(val|valid|validation|test|eval|evaluation|infer|inference|predict|dev)([-_.]|$)", re.I)
NOT_RATES = re.compile(r"sched|decay|warm|min|step|end|final|factor|mult|backbone|disc|_d$|_g$", re.I)
OTHERS: dict[tuple[str, ...], re.Pattern[str]] = {RATE: NOT_RATES, LENGTH: NOT_LENGTHS, EPOCHS: NOT_EPOCHS}

HELP_LIMIT_S = 30.0


class Argument(Struct, frozen=True, kw_only=True):
    """`flag` as it is to be written: `--batch-size`, or `data.batch_size` for scripts that take `key=value`."""

    flag: str
    names: tuple[str, ...]  # all that mean it, `flag` included
    value: str | None  # as it stands on the command line, else the default; None where nobody says
    given: bool = False  # on the command line
    source: str = ""  # asked, command, source, help


class Searched(Struct, frozen=True, kw_only=True):
    """Where an argument is looked for. `ask_help` prints the script's help, and is called only where nothing else tells."""

    words: list[str]  # the command behind the interpreter
    names: tuple[str, ...]  # patterns: BATCH, RATE, LENGTH or EPOCHS
    asked: str | None = None
    ask_help: Callable[[], str] | None = None


def find(searched: Searched) -> Argument | Missing:
    if searched.asked is not None:
        return _told(searched, Option(names=(searched.asked,)), "asked")
    options, parsed = _from_source(searched.words)
    best = _best(options, searched.names)
    if best is not None:
        return _told(searched, best, "source")
    on_the_line = _best([Option(names=(name,)) for name in _names_on(searched.words)], searched.names)
    if on_the_line is not None:
        return _told(searched, on_the_line, "command")
    if parsed and searched.ask_help is not None:
        best = _best(helped(searched.ask_help()), searched.names)
        if best is not None:
            return _told(searched, best, "help")
    return Missing("no-argument")


def put(command: Sequence[str], argument: Argument, value: str) -> list[str]:
    """The command with this value: in its place where it stands, else at the end, where the last word counts."""
    words = list(command)
    places = list(_places(words, argument.names))
    for place, prefix in places:
        words[place] = f"{prefix}{value}"
    if not places:
        end = words.index("--", 1) if "--" in words[1:] else len(words)
        words[end:end] = [argument.flag, value] if argument.flag.startswith("-") else [f"{argument.flag}={value}"]
    return words


def value_in(command: Sequence[str], names: Sequence[str]) -> str | None:
    """What the command says, by whichever name; the last one counts."""
    words = list(command)
    values = [words[place].removeprefix(prefix) for place, prefix in _places(words, names)]
    return values[-1] if values else None


def help_text(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """What the script prints for `--help`, within a time limit: one that takes no such option would begin to train."""
    told = probe_host.run([*command, "--help"], HELP_LIMIT_S, {**environ, "COLUMNS": "160"})
    return told.stdout if told.code == 0 else ""


def _told(searched: Searched, option: Option, source: str) -> Argument:
    given = value_in(searched.words, option.names)
    value = given if given is not None else option.default
    return Argument(flag=option.names[0], names=option.names, value=value, given=given is not None, source=source)


def _from_source(words: Sequence[str]) -> tuple[list[Option], bool]:
    """Options that the script declares; whether it may take others, declared elsewhere."""
    path = target.script_file(words)
    if path is None:
        return [], True
    trees = [tree for file in (path, *_neighbours(path)) if (tree := _tree(file)) is not None]
    options = [option for tree in trees for option in declared(tree)]
    return options, any(reads_a_command_line(tree) for tree in trees)


def _neighbours(path: Path) -> list[Path]:
    """Files beside the script that it imports: many keep their options in one."""
    tree = _tree(path)
    names = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    files = [path.parent.joinpath(*name.split(".")).with_suffix(".py") for name in dict.fromkeys(names)]
    return [file for file in files if os.path.isfile(file)]  # False for a name that is too long for one


def _tree(path: Path) -> ast.Module | None:
    try:
        tree = script_ast.parse(path.read_bytes())
    except OSError:
        return None
    return None if isinstance(tree, Missing) else tree


def _best(options: Sequence[Option], patterns: Sequence[str]) -> Option | None:
    others = OTHERS.get(tuple(patterns))
    usable = [option for option in options if not any(_excluded(name, others) for name in option.names)]
    for pattern in patterns:
        for option in usable:
            if any(re.fullmatch(pattern, _plain(name)) for name in option.names):
                return option
    return None


def _excluded(name: str, others: re.Pattern[str] | None) -> bool:
    return bool(EVALUATION.search(name)) or (others is not None and bool(others.search(name)))


def _plain(name: str) -> str:
    return name.lstrip("-").lower().replace("-", "_").replace(".", "_")


def _names_on(words: Sequence[str]) -> list[str]:
    """Names that the command itself uses: `--bs 8`, `--bs=8`, `train.batch_size=8`."""
    found = []
    for place, word in enumerate(words):
        name, equals, _ = word.partition("=")
        following = words[place + 1] if place + 1 < len(words) else ""
        kind = r"-{1,2}[A-Za-z][\w.-]*" if name.startswith("-") else r"\+{0,2}[A-Za-z_][\w.]*"
        has_value = equals or (name.startswith("-") and re.fullmatch(r"[\d.eE+-]+", following))
        if has_value and re.fullmatch(kind, name):
            found.append(name)
    return found


def _places(words: Sequence[str], names: Sequence[str]) -> list[tuple[int, str]]:
    """(position, what stands before the value in that word) wherever one of the names is given a value."""
    found = []
    for place, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if equals and name in names:
            found.append((place, f"{name}="))
        elif word in names and word.startswith("-") and place + 1 < len(words):
            found.append((place + 1, ""))
        else:
            short = next(
                (one for one in names if re.fullmatch(r"-[A-Za-z]", one) and re.fullmatch(rf"{one}[\d.]+", word)), None
            )
            found += [(place, short)] if short else []
    return found
