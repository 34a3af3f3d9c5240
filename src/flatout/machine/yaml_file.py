"""The one door to YAML: plain values and where they stand. Safe loading only; nothing in a file is ever constructed or run."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from flatout.base.records import Missing

Path = tuple[str, ...]


def read(text: str) -> tuple[Any, dict[Path, int]] | Missing:
    """The values, and the line (from 1) of every key by its path; or why there are none.

    Anchors can make a file contain itself, or a thousand times the same: what was walked once is not walked again.
    """
    try:
        value = YAML(typ="safe", pure=True).load(text)
        root = YAML(typ="safe", pure=True).compose(text)
    except (YAMLError, ValueError, RecursionError) as error:
        return Missing("syntax-error", str(error).splitlines()[0] if str(error) else type(error).__name__)
    lines: dict[Path, int] = {}
    _walk(root, (), lines, set())
    return value, lines


def _walk(node: Node | None, path: Path, lines: dict[Path, int], been: set[int]) -> None:
    if id(node) in been:
        return
    been.add(id(node))
    if isinstance(node, MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            lines[here] = key.start_mark.line + 1
            _walk(value, here, lines, been)
    elif isinstance(node, SequenceNode):
        for number, value in enumerate(node.value):
            _walk(value, (*path, str(number)), lines, been)
