"""The only file that imports YAML: plain values and their positions. Safe loading only; no object is constructed."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from flatout.base.records import Missing
from flatout.machine import yaml_limits
from flatout.machine.config_tree import ALIAS, MAPPING, SCALAR, SEQUENCE, Entry, Path, Tree

# A file can also make the reader itself stumble: `!!bool maybe` is a KeyError of its own.
FAULTS = (YAMLError, ValueError, RecursionError, LookupError, TypeError, AttributeError, AssertionError, ArithmeticError)

PROPERTIES = re.compile(r"(?:[&!]\S*\s+)+")  # anchor and tag stand before a value


def read(text: str) -> tuple[Any, dict[Path, int]] | Missing:
    """The values, and the line (from 1) of every key by its path; or why there are none.

    Anchors can make a file contain itself, or a thousand times the same: what was walked once is not walked again.
    """
    try:
        with _quietly():
            _check_limits(text)
            value = YAML(typ="safe", pure=True).load(text)
            root = YAML(typ="safe", pure=True).compose(text)
    except FAULTS as error:
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


def tree(text: str) -> Tree | Missing:
    """The values, and where each of them stands; or why there are none."""
    try:
        with _quietly():
            _check_limits(text)
            value = YAML(typ="safe", pure=True).load(text)
        entries = _Composer(text).entries
    except DuplicateKeyError as error:
        return Missing("duplicate-key", _where(error))
    except ConstructorError as error:
        return Missing("unsafe-tag" if "tag" in (error.problem or "") else "syntax-error", _where(error))
    except FAULTS as error:
        several = "another document" in str(error)
        return Missing("several-documents" if several else "syntax-error", _where(error))
    return Tree(value=value, entries=entries)


def _check_limits(text: str) -> None:
    if yaml_limits.brackets_too_deep(text):
        raise ValueError(f"more than {yaml_limits.DEEPEST} levels")
    broken = yaml_limits.broken_by(YAML(typ="safe", pure=True).parse(text))
    if broken is not None:
        raise ValueError(broken)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """It warns of `1e-4` under %YAML 1.1: the file is the user's, and stays as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _where(error: Exception) -> str:
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{str(error.problem).splitlines()[0]} ({mark.line + 1}:{mark.column + 1})"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


class _Composer:
    """Entries from the parser's events: aliases are still aliases there, and nothing is merged or resolved yet."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.entries: list[Entry] = []
        events = list(YAML(typ="safe", pure=True).parse(text))
        self._repeated = {event.anchor for event in events if isinstance(event, AliasEvent)}
        self._events: Iterator[Any] = iter(events)
        for event in self._events:
            if isinstance(event, MappingStartEvent | SequenceStartEvent):
                self._fill(event, (), shared=False)
                break

    def _fill(self, begin: Any, path: Path, shared: bool) -> Any:
        """What stands in a mapping or list; gives the event that ends it."""
        number, key = 0, None
        mapping, flow = isinstance(begin, MappingStartEvent), bool(begin.flow_style)
        for event in self._events:
            if isinstance(event, MappingEndEvent | SequenceEndEvent):
                return event
            if not mapping:
                self._value(event, None, (*path, str(number)), flow, shared)
                number += 1
            elif key is None:
                key = event
                if not isinstance(event, ScalarEvent | AliasEvent):
                    self._fill(event, (*path, "?"), shared)  # a key that is a list: kept, never touched
            else:
                self._value(event, key, (*path, str(getattr(key, "value", "?"))), flow, shared)
                key = None
        return begin

    def _value(self, event: Any, key: Any, path: Path, flow: bool, shared: bool) -> None:
        anchor = str(event.anchor or "")
        shared = shared or (anchor in self._repeated and not isinstance(event, AliasEvent))
        entry = Entry(
            path=path,
            key_start=-1 if key is None else key.start_mark.index,
            key_end=-1 if key is None else key.end_mark.index,
            start=event.start_mark.index,
            end=event.end_mark.index,
            kind=SCALAR,
            tag=str(getattr(event, "tag", "") or ""),
            anchor=anchor,
            flow=flow,
            shared=shared,
            line=event.start_mark.line + 1,
        )
        self.entries.append(entry)
        if isinstance(event, AliasEvent):
            entry.kind, entry.text = ALIAS, anchor
        elif isinstance(event, ScalarEvent):
            entry.text, entry.quote = event.value, event.style or ""
            if properties := PROPERTIES.match(self.text, entry.start, entry.end):
                entry.start = properties.end()
        else:
            entry.kind = MAPPING if isinstance(event, MappingStartEvent) else SEQUENCE
            entry.end = self._fill(event, path, shared).end_mark.index
