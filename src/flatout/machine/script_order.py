"""What a script does at import, and in which order: unguarded work, and variables set too late."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.machine.script_values import called, dotted

VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

# Packages that import torch themselves.
TORCH = ("torch", "torchvision", "torchaudio", "transformers", "accelerate", "lightning", "pytorch_lightning", "timm", "fastai")

# Asking these does not start CUDA (the count comes from NVML, seeds are kept for later): the variable still works after them.
HARMLESS = (
    "device_count",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "empty_cache",
    "is_initialized",
    "GradScaler",
    "autocast",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def imports_torch(tree: ast.AST) -> bool:
    return any(_imports_torch(node) for node in ast.walk(tree))


def guard(tree: ast.Module) -> ast.If | None:
    """if __name__ == "__main__":"""
    for statement in tree.body:
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Compare):
            sides = [statement.test.left, *statement.test.comparators]
            names = {side.id for side in sides if isinstance(side, ast.Name)}
            if "__name__" in names and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides):
                return statement
    return None


def unguarded_work(tree: ast.Module) -> int | None:
    """The line of the first training or loading that every process importing this file would do again."""
    loaders = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called(node.value) == "DataLoader"
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    working = _working_functions(tree, loaders)
    protected = guard(tree)
    for statement in tree.body:
        if statement is protected or isinstance(statement, Function | ast.ClassDef):
            continue
        for node in _outside_functions(statement):
            if _is_work(node, loaders) or (isinstance(node, ast.Call) and called(node) in working):
                return int(getattr(node, "lineno", statement.lineno))
    return None


def late_visible_devices(tree: ast.Module) -> tuple[int | None, int | None]:
    """Where the variable is set although torch is imported already, and the line that starts CUDA even before."""
    for block in _blocks(tree):
        for node in block:
            if _sets_variable(node) is None:
                continue
            line = int(getattr(node, "lineno", 0))
            before = [*_blocks(tree)[0], *block]
            earlier = [other for other in before if 0 < getattr(other, "lineno", 0) < line]
            if any(_imports_torch(other) for other in earlier):
                started = min((int(getattr(other, "lineno", 0)) for other in earlier if _starts_cuda(other)), default=None)
                return line, started
    return None, None


def _blocks(tree: ast.Module) -> list[list[ast.AST]]:
    """The module's own statements first, then each function's: what runs in the order in which it is written."""
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    bodies = [tree.body, *(function.body for function in functions)]
    return [[node for statement in body for node in _outside_functions(statement)] for body in bodies]


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what it does at once; what a function or class defined inside does comes later."""
    waiting = [node]  # a stack, because long sums nest deeper than Python's own recursion goes
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            yield node
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _working_functions(tree: ast.Module, loaders: set[str]) -> set[str]:
    """Functions of this file that train or load, themselves or through others of it."""
    functions = {node.name: list(ast.walk(node)) for node in tree.body if isinstance(node, Function)}
    working = {name for name, nodes in functions.items() if any(_is_work(node, loaders) for node in nodes)}
    while True:
        more = {
            name
            for name, nodes in functions.items()
            if name not in working and any(isinstance(node, ast.Call) and called(node) in working for node in nodes)
        }
        if not more:
            return working
        working |= more


def _is_work(node: ast.AST, loaders: set[str]) -> bool:
    """A backward pass, a trainer set to work, or a loader that is iterated: there its workers start."""
    if isinstance(node, ast.For | ast.AsyncFor):
        parts = {part.id for part in ast.walk(node.iter) if isinstance(part, ast.Name)}
        return bool(parts & loaders) or any(
            isinstance(part, ast.Call) and called(part) == "DataLoader" for part in ast.walk(node.iter)
        )
    if not isinstance(node, ast.Call):
        return False
    name = called(node)
    if name in ("backward", "fit") and isinstance(node.func, ast.Attribute):
        return True
    if name == "train" and isinstance(node.func, ast.Attribute):
        return "trainer" in dotted(node.func.value).lower()
    return name == "iter" and any(isinstance(part, ast.Name) and part.id in loaders for part in node.args)


def _imports_torch(node: ast.AST) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    return any(name.split(".")[0] in TORCH for name in names)


def _sets_variable(node: ast.AST) -> str | None:
    """os.environ["CUDA_VISIBLE_DEVICES"] = …, .setdefault(…), .update({…}), os.putenv(…)"""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and called(target.value) == "environ":
                return _variable(target.slice)
    if isinstance(node, ast.Call):
        if called(node) in ("setdefault", "putenv") and node.args:
            return _variable(node.args[0])
        if called(node) == "update" and isinstance(node.func, ast.Attribute) and called(node.func.value) == "environ":
            entries = [key for item in node.args if isinstance(item, ast.Dict) for key in item.keys]
            given = [keyword.arg for keyword in node.keywords]
            return next((name for name in (*map(_variable, entries), *given) if name in VARIABLES), None)
    return None


def _variable(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and node.value in VARIABLES else None


def _starts_cuda(node: ast.AST) -> bool:
    """What makes CUDA read its variables: any question to torch.cuda but the harmless ones, any tensor on the card."""
    if not isinstance(node, ast.Call):
        return False
    whole, name = dotted(node.func), called(node)
    if "cuda." in f"{whole}." and whole.split(".")[0] == "torch":
        return name not in HARMLESS and "amp" not in whole.split(".")
    if name == "cuda" and isinstance(node.func, ast.Attribute):
        return True
    literals = [
        item.value for item in (*node.args, *(keyword.value for keyword in node.keywords)) if isinstance(item, ast.Constant)
    ]
    on_card = any(isinstance(value, str) and value.startswith("cuda") for value in literals)
    return on_card and name not in ("device", "autocast", "GradScaler", "add_argument", "DataLoader")
