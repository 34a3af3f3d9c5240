"""Which names a piece of code uses: globals, attributes, and modules that it imports while it runs."""

from __future__ import annotations

import dis
from types import CodeType
from typing import NamedTuple

# Code that names one of these may read anything, by names that stand nowhere in it.
BY_ANY_NAME = frozenset(
    {"eval", "exec", "globals", "__import__", "import_module", "gc", "inspect", "ctypes", "__globals__", "_getframe"}
)
# These reach attributes of an object by names made while the code runs.
BY_MADE_NAME = frozenset({"getattr", "setattr", "hasattr", "delattr", "vars", "__dict__", "attrgetter", "methodcaller"})


class Names(NamedTuple):
    """Sorted, so that two walks meet them in one order."""

    globals: tuple[str, ...]
    attributes: tuple[str, ...]
    modules: tuple[str, ...]


_known: dict[CodeType, Names] = {}


def names_in(code: CodeType) -> Names:
    found = _known.get(code)
    if found is None:
        kinds: tuple[set[str], set[str], set[str]] = (set(), set(), set())
        _collect(code, *kinds)
        found = _known[code] = Names(*(tuple(sorted(kind)) for kind in kinds))
    return found


def _collect(code: CodeType, names: set[str], attributes: set[str], modules: set[str]) -> None:
    for instruction in dis.get_instructions(code):
        if instruction.opcode not in dis.hasname:
            continue
        operation, name = instruction.opname, str(instruction.argval)
        if operation == "IMPORT_NAME":
            modules.add(name)
        elif "GLOBAL" in operation or operation.endswith("_NAME"):
            names.add(name)
        else:
            attributes.add(name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _collect(constant, names, attributes, modules)
