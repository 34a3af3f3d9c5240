"""Which options a script takes on its command line: read from its source, or from what it prints for `--help`. Pure."""

from __future__ import annotations

import ast
import re

from flatout.base.records import Struct
from flatout.machine.script_values import UNKNOWN, Values, called

# Calls that declare an option, with the option's names as plain strings.
DECLARING = ("add_argument", "option", "Option", "DEFINE_integer", "DEFINE_float", "DEFINE_string")

# Names by which a script shows that it reads a command line, though its options are declared elsewhere.
READING = ("parse_args", "parse_known_args", "parse_args_into_dataclasses", "HfArgumentParser", "LightningCLI", "Fire", "CLI")

# "  -b N, --batch-size N  help": an option's line in argparse's, click's and docopt's help.
HELP_LINE = re.compile(r"^ {1,8}(-{1,2}[\w][\w.-]*.*)$")
NAME = re.compile(r"(?<![\w-])(-{1,2}[A-Za-z][\w.-]*)")
DEFAULT = re.compile(r"[\[(]\s*default[:=]?\s*['\"]?([^\s'\";,)\]]+)", re.I)


class Option(Struct, frozen=True, kw_only=True):
    """One option: its names as they are typed, the longest first, and its default where that is written down."""

    names: tuple[str, ...]
    default: str | None = None


def declared(tree: ast.Module) -> list[Option]:
    """What the source declares: `add_argument("--batch-size", default=16)` and its kin."""
    values = Values(tree)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or called(node) not in DECLARING:
            continue
        words = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        if called(node).startswith("DEFINE_"):
            words = [f"--{word}" for word in words[:1]]
        names = _sorted(word for word in words if re.fullmatch(r"-{1,2}[A-Za-z][\w.-]*", word))
        if names:
            default = next((values.of(keyword.value) for keyword in node.keywords if keyword.arg == "default"), None)
            found.append(Option(names=names, default=None if default in (UNKNOWN, None) else str(default)))
    return found


def reads_a_command_line(tree: ast.Module) -> bool:
    names = {called(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return bool(names & {*DECLARING, *READING})


def helped(text: str) -> list[Option]:
    """What a `--help` text lists. An option's explanation may go on in further lines: its default may stand there."""
    found: list[Option] = []
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if HELP_LINE.match(line):
            blocks.append([line.strip()])
        elif blocks and line.startswith("   ") and line.strip():
            blocks[-1].append(line.strip())
    for block in blocks:
        head = re.split(r" {2,}", block[0], maxsplit=1)[0]
        names = _sorted(NAME.findall(head))
        default = DEFAULT.search(" ".join(block))
        if names:
            found.append(Option(names=names, default=default[1].rstrip(".") if default and default[1] != "None" else None))
    return found


def _sorted(names: object) -> tuple[str, ...]:
    return tuple(sorted(dict.fromkeys(names), key=lambda name: (not name.startswith("--"), -len(name))))  # type: ignore[call-overload]
