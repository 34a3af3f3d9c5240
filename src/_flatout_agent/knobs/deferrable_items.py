"""Which `.item()` of a source may wait: proved from the source alone, where the number is kept in a variable of its own.

    running += loss.item() * accumulate        # may wait: each use below asks for the number itself
    if step % 50 == 0:
        print(f"loss {running / 50:.3f}")
        running = 0.0

The variable belongs to one function (or to the module), no inner function, comprehension or `global` knows it, and it is read
only where Python makes a plain number or a text of it: inside an f-string, as an argument of `print`, as the left side of
arithmetic. Where it is returned, passed on, stored, compared or captured as it is, nothing is proved and nothing waits.
"""

from __future__ import annotations

import ast
from typing import Iterator

INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SEES_ALL = frozenset({"locals", "globals", "vars", "eval", "exec", "breakpoint"})
MAKES_TEXT = frozenset({"print", "str", "repr", "format", "round", "float", "int"})
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


def lines_that_may_wait(text: str) -> tuple[set[int], set[int]]:
    """(lines with an `.item()` that may wait, lines with one that may not)"""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return set(), set()
    every = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and is_item(node)}
    if _rebinds_builtins(tree):
        return set(), every
    waiting: set[int] = set()
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))]:
        waiting |= _of_scope(scope)
    busy = list(_statement_lines(tree))
    waiting = {line for line in waiting if busy.count(line) == 1}
    return waiting, every - waiting


def is_item(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "item"
        and not node.args
        and not node.keywords
    )


def _of_scope(scope: ast.AST) -> set[int]:
    own, inner = _parts(scope)
    if any(isinstance(node, ast.Name) and node.id in SEES_ALL for node in own):
        return set()
    kept = [(_keeps(node), node) for node in own if isinstance(node, (ast.Assign, ast.AugAssign))]
    parents = {child: node for node in [scope, *own] for child in ast.iter_child_nodes(node)}
    known_inside = {name for part in inner for name in _names(part)}
    declared = {name for node in own if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    parameters = {argument.arg for argument in ast.walk(getattr(scope, "args", ast.Pass())) if isinstance(argument, ast.arg)}
    found = set()
    for name, node in kept:
        if not name or name in known_inside | declared | parameters:
            continue
        uses = [part for part in own if isinstance(part, ast.Name) and part.id == name]
        if all(_asks_for_the_number(use, parents) for use in uses):
            found.add(node.lineno)
    return found


def _parts(scope: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """What is the scope's own, and the scopes inside it."""
    own: list[ast.AST] = []
    inner: list[ast.AST] = []
    todo = list(getattr(scope, "body", []))
    while todo:
        node = todo.pop()
        if isinstance(node, (*INNER, *COMPREHENSIONS)):
            inner.append(node)
            continue
        own.append(node)
        todo += ast.iter_child_nodes(node)
    return own, inner


def _keeps(node: ast.Assign | ast.AugAssign) -> str:
    """The variable in which this statement keeps an item, if that is all it does; on one line."""
    target: ast.AST | None
    if isinstance(node, ast.Assign):
        target = node.targets[0] if len(node.targets) == 1 else None
    else:
        target = node.target if isinstance(node.op, ast.Add) else None
    if not isinstance(target, ast.Name) or node.lineno != node.end_lineno or not _is_plain_item(node.value):
        return ""
    items = [part for part in ast.walk(node.value) if is_item(part)]
    others = {name for name in _names(node.value) if name == target.id}
    return target.id if len(items) == 1 and not others else ""


def _is_plain_item(value: ast.AST) -> bool:
    """An item, or an item times or over something."""
    if is_item(value):
        return True
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, (ast.Mult, ast.Div)):
        return False
    return is_item(value.left) or (isinstance(value.op, ast.Mult) and is_item(value.right))


def _asks_for_the_number(use: ast.Name, parents: dict[ast.AST, ast.AST]) -> bool:
    if isinstance(use.ctx, ast.Store):
        return True  # whatever it holds from then on
    if not isinstance(use.ctx, ast.Load):
        return False
    parent = parents[use]
    if isinstance(parent, ast.FormattedValue):
        return True
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ARITHMETIC) and (parent.left is use or _is_number(parent.left)):
        return True
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in MAKES_TEXT:
        return use in parent.args
    return _is_filled_in(use, parent, parents)


def _is_filled_in(use: ast.AST, parent: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Into a text that stands there: "…" % x, "…" % (x, y), "…".format(x, name=y)."""
    if isinstance(parent, ast.Tuple):
        use, parent = parent, parents[parent]
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mod):
        return parent.right is use and _is_text(parent.left)
    if isinstance(parent, ast.keyword):
        parent = parents[parent]
    return (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Attribute)
        and parent.func.attr == "format"
        and _is_text(parent.func.value)
        and not isinstance(use, ast.Tuple)
    )


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _names(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, (ast.Global, ast.Nonlocal)):
            yield from part.names


def _rebinds_builtins(tree: ast.AST) -> bool:
    """A `print` of the script's own may do anything with what it is given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)) and node.id in MAKES_TEXT:
            return True
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in MAKES_TEXT:
            return True
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            bound = {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            if bound & MAKES_TEXT or "*" in bound:
                return True
        if isinstance(node, ast.arg) and node.arg in MAKES_TEXT:
            return True
    return False


def _statement_lines(tree: ast.AST) -> Iterator[int]:
    """The lines on which statements stand; one that holds others counts where it begins."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            yield node.lineno
