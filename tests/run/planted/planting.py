"""Plants faults in the agent as it is imported: standard library only, for it runs inside the observed process.

A point is `module:function`, nested functions by the path to them
(`timeline.hooks.loader_wait:Iterators.started.let_go`). A planted function raises the moment it is called, as if it were
replaced by one that raises. `@guarded` plants at the start of the function's own `try` instead: for wrappers that make the
script's own call, where what lies outside is that call.
The source is changed in memory while it is imported, so that closures can be reached, and every importer gets the same.
"""

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from functools import cache

PACKAGE = "_flatout_agent."
CALL = "__planted__"
FIRST_BATCH = "timeline.hooks.loader_wait:Iterators.turned_to"

# What hooks call that is no function of ours: a bound method in an attribute of the instance.
ATTRIBUTES = {"timeline.event_buffer:Tape.note": ("Tape", "note")}

# A training of a hundred steps must come to everything that a long one does.
IN_A_HURRY = {
    "timeline.event_buffer": {"SECOND": 2_000_000, "MOST_LINES": 8, "EARLY_TICKS": 1 << 20},
    "timeline.batches_in_flight": {"MOST_ACCOUNTS": 2},
    # Awake for some steps, and then asleep whatever there is to tell: neither is left to how busy the machine is.
    "timeline.hooks.hook_suspension": {"FIRST_LOOK": 0, "FEWEST_STEPS": 24, "REST": 10_000_000, "MOST_REST": 10_000_000}
    | {"NEXT_TO_NOTHING": 1.0, "LITTLE": 1.0},
    "timeline.hooks.samples_from_model_inputs": {"WITHOUT_BATCHES": 2, "MOST_TICKS": 4096},
    "timeline.hooks.script_lines": {"SHARE": 0.0, "SELDOM": 0.005, "OFTEN": 0.005},
    "timeline.hooks.step_sampling": {"LOOK": 0, "FEWEST_STEPS": 2, "MOST_GLANCES": 1, "LEAST_GLANCES": 1},
}


class PlantedError(RuntimeError):
    """Says where it was planted: so a failing test names its point whatever else was planted."""


class Plan:
    """Which points raise: at every call, or, where `nth` is given, at the n-th since the first batch arrived alone.

    All points that are called are written down, whether they raise or not.
    """

    def __init__(self, points, nth, seen):
        self._points = frozenset(points)
        self._nth = nth
        self._path = seen
        self._reached = set()
        self._calls = {}

    def __call__(self, point):
        if point not in self._reached:
            self._reached.add(point)
            with open(self._path, "a", encoding="ascii") as file:  # at once: a forked child may leave by os._exit
                file.write(point + "\n")
        if point in self._points and (not self._nth or self._is_nth(point)):
            raise PlantedError(f"planted in {point}")

    def _is_nth(self, point):
        if FIRST_BATCH not in self._reached:
            return False  # a fault before would end the observation, and nothing more would be tried
        self._calls[point] = calls = self._calls.get(point, 0) + 1
        return calls == self._nth


def functions_of(tree):
    """(path, node) of every named function, methods and closures included."""

    def walk(node, path):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield [*path, child.name], child
                yield from walk(child, [*path, child.name])
            else:
                yield from walk(child, [*path, child.name] if isinstance(child, ast.ClassDef) else path)

    for path, node in walk(tree, []):
        yield ".".join(path), node


def guarded_parts(function):
    """The bodies of the `try` statements of its own whose handler takes any exception."""
    waiting = list(function.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        if isinstance(node, ast.Try) and any(isinstance(h.type, ast.Name) and h.type.id == "Exception" for h in node.handlers):
            yield node.body
        waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


def plant(tree, module):
    for path, function in list(functions_of(tree)):
        for part in guarded_parts(function):
            part.insert(0, _call(f"{module}:{path}@guarded"))
        described = isinstance(function.body[0], ast.Expr) and isinstance(function.body[0].value, ast.Constant)
        function.body.insert(int(described), _call(f"{module}:{path}"))
    return ast.fix_missing_locations(tree)


@cache
def planted_code(path, module):
    with open(path, encoding="utf-8") as file:
        return compile(plant(ast.parse(file.read()), module), path, "exec", dont_inherit=True)


def prepare(inject):
    """All of it, before processes are forked that need it."""
    agent = os.path.dirname(inject)
    for folder, _, names in os.walk(agent):
        for name in names:
            if name.endswith(".py") and name != "__init__.py":
                path = os.path.join(folder, name)
                planted_code(path, os.path.relpath(path, agent)[:-3].replace(os.sep, "."))


def _call(point):
    return ast.parse(f"{CALL}({point!r})").body[0]


class Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name, path, module, plan):
        super().__init__(name, path)
        self._module = module
        self._plan = plan

    def get_code(self, name):
        """Without the cache on disk, which belongs to the agent as it is."""
        return planted_code(self.get_filename(name), self._module)

    def exec_module(self, module):
        setattr(module, CALL, self._plan)
        super().exec_module(module)
        for name, value in IN_A_HURRY.get(self._module, {}).items():
            setattr(module, name, value)
        for point, (owner, attribute) in ATTRIBUTES.items():
            if point.split(":")[0] == self._module:
                setattr(vars(module)[owner], attribute, _property(self._plan, point, attribute))


def _property(plan, point, name):
    def get(instance):
        plan(point)
        return vars(instance)[name]

    return property(get, lambda instance, value: vars(instance).__setitem__(name, value))


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, plan):
        self._plan = plan

    def find_spec(self, name, path, target=None):
        ours = name.startswith(PACKAGE) or name == "sitecustomize"
        spec = importlib.machinery.PathFinder.find_spec(name, path) if ours else None
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        short = name[len(PACKAGE) :] if name.startswith(PACKAGE) else "inject.sitecustomize"
        spec.loader = Loader(name, spec.origin, short, self._plan)
        return spec


def begin(inject, plan):
    """As Python does at its start with our folder on PYTHONPATH."""
    sys.modules.pop("sitecustomize", None)
    sys.meta_path.insert(0, Finder(plan))
    if inject not in sys.path:
        sys.path.insert(0, inject)
    with contextlib.suppress(ModuleNotFoundError):  # the user has none: what `site` expects, too
        import sitecustomize  # noqa: F401


def plan_of(environ=os.environ):
    return Plan(environ["PLANTED"].split(","), int(environ["PLANTED_NTH"]), environ["PLANTED_SEEN"])
