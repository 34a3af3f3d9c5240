"""What an expression of a script comes to when nothing is passed to the script: literals, and the defaults behind names."""

from __future__ import annotations

import ast
from typing import Any

UNKNOWN: Any = object()

DEEPEST = 8  # names that stand for names


class Values:
    """Literals that a script gives to names, keys of its own dictionaries, and options of its command line."""

    def __init__(self, tree: ast.Module) -> None:
        self.names: dict[str, list[ast.expr]] = {}
        self.keys: dict[str, list[ast.expr]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._assign(node.target, node.value)
            elif isinstance(node, ast.Call) and called(node) == "add_argument":
                self._option(node)
        for statement in tree.body:
            if isinstance(statement, ast.Assign):
                for key, value in pairs(statement.value):
                    self.keys.setdefault(key, []).append(value)

    def of(self, node: ast.expr | None, depth: int = 0) -> Any:
        """The value, or UNKNOWN."""
        if node is None or depth > DEEPEST:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._single(self.names.get(node.id), depth)
        if isinstance(node, ast.Attribute):
            # args.num_workers: an option's default, a field of a class, a key of a dictionary that became an object
            return self._single(self.keys.get(node.attr) or self.names.get(node.attr), depth)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return self._single(self.keys.get(str(node.slice.value)), depth)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node, depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        return UNKNOWN

    def dictionary(self, node: ast.expr) -> dict[str, ast.expr] | None:
        """The entries of a dictionary written out, also behind a name; None where it is made elsewhere."""
        if isinstance(node, ast.Name):
            given = self.names.get(node.id, [])
            node = given[0] if len(given) == 1 else node
        if isinstance(node, ast.Dict) or (isinstance(node, ast.Call) and called(node) == "dict" and not node.args):
            return dict(pairs(node))
        return None

    def _unary(self, node: ast.UnaryOp, depth: int) -> Any:
        value = self.of(node.operand, depth + 1)
        if value is UNKNOWN:
            return UNKNOWN
        if isinstance(node.op, ast.Not):
            return not value
        return -value if isinstance(node.op, ast.USub) and isinstance(value, int | float) else UNKNOWN

    def _call(self, node: ast.Call, depth: int) -> Any:
        name = called(node)
        if name in ("bool", "int", "str") and len(node.args) == 1:
            value = self.of(node.args[0], depth + 1)
            try:
                return value if value is UNKNOWN else {"bool": bool, "int": int, "str": str}[name](value)
            except (TypeError, ValueError):
                return UNKNOWN
        if name == "get" and node.args and isinstance(node.args[0], ast.Constant):
            given = self._single(self.keys.get(str(node.args[0].value)), depth)
            if given is UNKNOWN and len(node.args) == 2:
                return self.of(node.args[1], depth + 1)
            return given
        return UNKNOWN

    def _single(self, given: list[ast.expr] | None, depth: int) -> Any:
        """What is given once, or always the same; a name with several values could be any of them."""
        if not given:
            return UNKNOWN
        values = [self.of(node, depth + 1) for node in given]
        return values[0] if all(value is not UNKNOWN and value == values[0] for value in values) else UNKNOWN

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.names.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Attribute):
            self.names.setdefault(target.attr, []).append(value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, other in zip(target.elts, value.elts, strict=True):
                self._assign(one, other)

    def _option(self, node: ast.Call) -> None:
        """parser.add_argument("--num-workers", type=int, default=4)"""
        words = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        long = next((word for word in words if word.startswith("--")), words[0] if words else "")
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        action = self.of(given.get("action"))
        default = given.get("default")
        if default is None and action in ("store_true", "store_false"):
            default = ast.Constant(action == "store_false")
        dest = self.of(given.get("dest"))
        name = dest if isinstance(dest, str) else long.lstrip("-").replace("-", "_")
        if name and default is not None:
            self.keys.setdefault(name, []).append(default)


def called(node: ast.expr) -> str:
    """The last part of what is called: `torch.utils.data.DataLoader(…)` -> DataLoader."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def dotted(node: ast.expr) -> str:
    """ "torch.cuda.is_available" of names and attributes; "" of anything else."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def pairs(node: ast.expr) -> list[tuple[str, ast.expr]]:
    """Entries of {"a": 1} and of dict(a=1)."""
    if isinstance(node, ast.Dict):
        return [
            (str(key.value), value) for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)
        ]
    if isinstance(node, ast.Call) and called(node) == "dict":
        return [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
    return []
