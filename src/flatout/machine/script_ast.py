"""What a Python script shows to a reader: its loaders, precision, devices, guard and start method. Parsed, never run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from flatout.base.records import Missing
from flatout.machine import script_order
from flatout.machine.machine_facts import ScriptLook
from flatout.machine.script_config import EVALUATION, truth
from flatout.machine.script_values import UNKNOWN, Values, called, dotted

NOT_LITERAL, NO_LOADER, NOT_TORCH = Missing("not-literal"), Missing("no-loader"), Missing("not-torch")

# Where DataLoader(dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, pin_memory) has them.
PLACES = {"num_workers": 5, "pin_memory": 7}

# A trainer of Transformers makes its loaders by these names.
TRAINER_ARGUMENTS = re.compile(r"\w*TrainingArguments|SFTConfig|\w*TrainerConfig")

DEVICE = re.compile(r"(cuda|cpu|mps|xpu)(:\d+)?")
HALF_TYPES = ("bfloat16", "float16", "half")
PRECISION_SWITCHES = ("precision", "mixed_precision", "fp16", "bf16", "use_amp", "amp")


class Found(NamedTuple):
    value: Any
    line: int


def parse(data: bytes) -> ast.Module | Missing:
    """From bytes, so that the encoding a script declares is honoured."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in the user's strings is not ours to report
            return ast.parse(data)
    except SyntaxError as error:
        return Missing("syntax-error", f"line {error.lineno}: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return Missing("not-text", str(error) or type(error).__name__)


def read(tree: ast.Module, path: str) -> ScriptLook:
    if not script_order.imports_torch(tree):
        return ScriptLook(path=path, workers=NOT_TORCH, pin_memory=NOT_TORCH, mixed_precision=NOT_TORCH, main_guard=NOT_TORCH)
    values, look = Values(tree), ScriptLook(path=path)
    _loader(tree, values, look)
    _precision(tree, values, look)
    _devices(tree, values, look)
    _start_method(tree, values, look)
    unguarded = script_order.unguarded_work(tree)
    look.main_guard = unguarded is None
    late, started = script_order.late_visible_devices(tree)
    look.sets_visible_devices_late = late is not None
    guard = script_order.guard(tree)
    where = {"main_guard": unguarded or (guard and guard.lineno), "sets_visible_devices_late": late, "cuda_started": started}
    look.lines.update({name: line for name, line in where.items() if line})
    return look


# -- loaders --------------------------------------------------------------------------------------------------------


def _loader(tree: ast.Module, values: Values, look: ScriptLook) -> None:
    """The worst loader of the training: the one with the fewest workers."""
    found = [_one_loader(call, values) for call, _ in _loaders(tree)]
    if not found:
        look.workers = look.pin_memory = NO_LOADER
        return
    counted = [loader for loader in found if isinstance(loader[0].value, int)]
    workers, pinned = min(counted, key=lambda loader: int(loader[0].value)) if counted else found[0]
    look.workers = workers.value if isinstance(workers.value, int) else NOT_LITERAL
    look.pin_memory = bool(pinned.value) if pinned.value is not UNKNOWN else NOT_LITERAL
    look.lines.update(workers=workers.line, pin_memory=pinned.line)


def _loaders(tree: ast.Module) -> list[tuple[ast.Call, str]]:
    """Calls that make loaders, without those whose name says that they only validate."""
    names = {id(node.value): _target(node) for node in ast.walk(tree) if isinstance(node, ast.Assign)}
    calls = [
        (node, names.get(id(node), ""))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and (called(node) == "DataLoader" or TRAINER_ARGUMENTS.fullmatch(called(node)))
    ]
    training = [(call, name) for call, name in calls if not EVALUATION.search(name)]
    return training or calls


def _target(node: ast.Assign) -> str:
    target = node.targets[0]
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def _one_loader(call: ast.Call, values: Values) -> tuple[Found, Found]:
    plain = called(call) == "DataLoader"
    before = "" if plain else "dataloader_"  # in Transformers pinning is on unless told otherwise
    return (
        _argument(call, f"{before}num_workers", 0, values),
        _argument(call, f"{before}pin_memory", not plain, values),
    )


def _argument(call: ast.Call, name: str, default: Any, values: Values) -> Found:
    """By keyword, by place, out of a dictionary that is written out; the library's own default where it is not given."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return Found(values.of(keyword.value), keyword.value.lineno)
    place = PLACES.get(name)
    if place is not None and len(call.args) > place:
        return Found(values.of(call.args[place]), call.args[place].lineno)
    for keyword in call.keywords:
        if keyword.arg is None:
            entries = values.dictionary(keyword.value)
            if entries is None:
                return Found(UNKNOWN, keyword.value.lineno)
            if name in entries:
                return Found(values.of(entries[name]), entries[name].lineno)
    return Found(UNKNOWN if any(isinstance(item, ast.Starred) for item in call.args) else default, call.lineno)


# -- precision ------------------------------------------------------------------------------------------------------


def _precision(tree: ast.Module, values: Values, look: ScriptLook) -> None:
    found = list(_precisions(tree, values))
    on = next((item for item in found if item.value is True), None)
    open_ = next((item for item in found if item.value is None), None)
    off = next((item for item in found if item.value is False), None)
    look.mixed_precision = True if on else NOT_LITERAL if open_ else False
    item = on or open_ or off
    if item:
        look.lines["mixed_precision"] = item.line


def _precisions(tree: ast.Module, values: Values) -> Iterator[Found]:
    """Every sign of reduced precision: True, False where it is switched off, None where that depends."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = called(node)
        given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        if name in ("autocast", "GradScaler"):
            enabled = values.of(given["enabled"]) if "enabled" in given else True
            yield Found(None if enabled is UNKNOWN else bool(enabled), node.lineno)
            continue
        if name in ("half", "bfloat16") and isinstance(node.func, ast.Attribute) and not node.args:
            yield Found(True, node.lineno)
        types = [*node.args, *(given[key] for key in ("dtype", "torch_dtype") if key in given)] if name != "device" else []
        if name in ("to", "from_pretrained") and any(dotted(item).split(".")[-1] in HALF_TYPES for item in types):
            yield Found(True, node.lineno)
        for switch in PRECISION_SWITCHES:
            if switch in given and name not in ("add_argument", "dict"):
                value = values.of(given[switch])
                yield Found(None if value is UNKNOWN else truth(value), given[switch].lineno)


# -- devices and processes ------------------------------------------------------------------------------------------


def _devices(tree: ast.Module, values: Values, look: ScriptLook) -> None:
    skipped = {id(part) for node in ast.walk(tree) for part in _not_devices(node)}
    found: dict[str, int] = {}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr) and id(node) not in skipped]
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        text = _device(node, values)
        if text:
            found.setdefault(text, node.lineno)
    look.device_strings = list(found)
    # A rule wants to know where a certain card is asked for; the plain "cuda" is everywhere.
    numbered = [name for name in found if ":" in name and not name.endswith(":0")]
    if found:
        look.lines["device_strings"] = found[(numbered or list(found))[0]]


def _not_devices(node: ast.AST) -> Iterator[ast.AST]:
    """Strings that are compared with, and where a checkpoint is loaded to, say nothing of where the training runs."""
    if isinstance(node, ast.Compare):
        yield from ast.walk(node)
    elif isinstance(node, ast.keyword) and node.arg == "map_location":
        yield from ast.walk(node.value)
    elif isinstance(node, ast.Call) and called(node) == "device" and len(node.args) == 2:
        yield node.args[0]  # torch.device("cuda", 1) is cuda:1


def _device(node: ast.expr, values: Values) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and DEVICE.fullmatch(node.value):
        return node.value
    if isinstance(node, ast.JoinedStr) and len(node.values) == 2:
        head, tail = node.values
        number = values.of(tail.value) if isinstance(tail, ast.FormattedValue) else UNKNOWN
        if isinstance(head, ast.Constant) and head.value == "cuda:" and isinstance(number, int):
            return f"cuda:{number}"
    if isinstance(node, ast.Call) and node.args:
        last = values.of(node.args[-1])
        whole = isinstance(last, int) and not isinstance(last, bool)
        if whole and (called(node) == "cuda" or dotted(node.func).endswith("cuda.set_device")):
            return f"cuda:{last}"
        if whole and called(node) == "device" and len(node.args) == 2 and values.of(node.args[0]) == "cuda":
            return f"cuda:{last}"
    return None


def _start_method(tree: ast.Module, values: Values, look: ScriptLook) -> None:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        given = next((keyword.value for keyword in node.keywords if keyword.arg in ("multiprocessing_context", "method")), None)
        if called(node) in ("set_start_method", "get_context"):
            given = node.args[0] if node.args else given
        elif called(node) != "DataLoader":
            continue
        value = values.of(given)
        if value in ("spawn", "fork", "forkserver"):
            look.start_method = value
            look.lines["start_method"] = node.lineno
            return
