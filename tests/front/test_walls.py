"""The walls of the house: imports run downwards, each foreign library has one door, the agent stands alone."""

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"

# From the top floor to the ground: a room imports those below it only.
ROOMS = [
    "cli",
    "watch",
    "report",
    "api",
    "bench",
    "tune",
    "doctor",
    "measure",
    "launch",
    "work",
    "machine",
    "knobs",
    "base",
    "data",
]

# Foreign library -> the only modules that may import it.
DOORS = {
    "click": {"flatout.cli.commandline"},
    "rich": {"flatout.report.terminal"},
    "textual": {"flatout.watch.window"},
    "msgspec": {"flatout.base.records"},
    "pynvml": {"flatout.machine.nvml"},
    "psutil": {"flatout.machine.host"},
    "ruamel": {"flatout.machine.yaml_file"},
    "lightning": {"flatout.api.adapters.lightning"},
    "transformers": {"flatout.api.adapters.transformers"},
    "accelerate": {"flatout.api.adapters.accelerate"},
    "typing_extensions": {"flatout.api.data_loading"},  # read by type checkers alone, which bring their own
}

TORCH_ROOMS = ("flatout.work.", "flatout.api.", "_flatout_agent.")


def modules():
    """(name, imported names, whole tree) of every module of the project."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield name, set(imports(tree)), path


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(module):
    parts = module.split(".")
    return parts[1] if parts[0] == "flatout" and len(parts) > 1 else None


def test_every_room_is_known_and_none_is_empty():
    folders = {path.name for path in (SOURCE / "flatout").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= set(ROOMS)
    for folder in folders:
        assert any((SOURCE / "flatout" / folder).rglob("*.py")), folder


def test_imports_run_downwards():
    for name, imported, _ in modules():
        here = room(name)
        if here not in ROOMS:
            continue
        for other in imported:
            there = room(other)
            if there in ROOMS:
                assert ROOMS.index(there) >= ROOMS.index(here), f"{name} reaches up to {other}"


def test_nobody_inside_imports_the_package_root():
    for name, imported, _ in modules():
        assert "flatout" not in imported, name


def test_the_agent_stands_alone():
    for name, imported, _ in modules():
        if not name.startswith("_flatout_agent"):
            continue
        for other in imported:
            top = other.split(".")[0]
            assert top in {"_flatout_agent", "torch", "sitecustomize"} or top in sys.stdlib_module_names, f"{name}: {other}"


def test_the_front_takes_the_wire_alone():
    """The library is the exception: it lives in the training process as the agent does, and puts on the same things."""
    allowed = {"_flatout_agent", "_flatout_agent.wire"}
    for name, imported, _ in modules():
        if name.startswith("flatout") and not name.startswith("flatout.api."):
            for other in imported:
                ours = other.split(".")[0] == "_flatout_agent"
                assert not ours or other in allowed or other.startswith("_flatout_agent.wire."), f"{name}: {other}"


def test_each_foreign_library_has_one_door():
    for name, imported, _ in modules():
        if name.startswith("_flatout_agent"):
            continue
        for other in imported:
            top = other.split(".")[0]
            if top in ("flatout", "_flatout_agent") or top in sys.stdlib_module_names:
                continue
            if top == "torch":
                assert name.startswith(TORCH_ROOMS), f"{name} imports torch"
                continue
            assert name in DOORS.get(top, ()), f"{name} imports {other} past its door"


def test_no_cycles():
    graph = {}
    known = {name for name, _, _ in modules()}
    for name, imported, _ in modules():
        graph[name] = {other for other in imported if other in known and other != name}
    done, path = set(), []

    def visit(name):
        if name in done:
            return
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        path.append(name)
        for other in graph[name]:
            visit(other)
        path.pop()
        done.add(name)

    for name in graph:
        visit(name)


def test_files_and_functions_stay_small():
    for name, _, path in modules():
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 400, f"{name} has grown past 400 lines"
        assert path.stem not in {"utils", "helpers", "common", "misc"}, name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno <= 60, f"{name}.{node.name} has grown past 60 lines"
