"""Making it permanent: for each kept knob the place in the user's own code, and the edit that does the same there.

Read off the source; where a place cannot be found the edit is said without one. Nothing is ever edited by us.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from flatout.base.records import Struct
from flatout.knobs.catalogue import RECORDED
from flatout.tune.search.questions_and_answers import Values

LOADER = {
    "workers": "num_workers",
    "persistent_workers": "persistent_workers",
    "prefetch_factor": "prefetch_factor",
    "pin_memory": "pin_memory",
}
DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}
TOP = {
    "tf32": 'torch.set_float32_matmul_precision("high"); torch.backends.cudnn.allow_tf32 = True',
    "cudnn_benchmark": "torch.backends.cudnn.benchmark = True",
}


class Edit(Struct, frozen=True, kw_only=True):
    """`permanent.<code>` in the catalogue says what to do with `edit` at `site`."""

    knobs: list[str]
    code: str
    site: str  # file:line, or empty
    edit: str


class Places(Struct, frozen=True, kw_only=True):
    """What a script's parts are called, and where; 0 where that is not plain."""

    model: str = "model"
    model_line: int = 0
    optimizer: str = ""
    optimizer_line: int = 0
    backward_line: int = 0


def edits(profile: Values, path: str, source: str, parts: Mapping[str, Sequence[str]], device: str) -> list[Edit]:
    """`parts` as the agent told them: classes under "roots" and "optimizers", file:line of loaders under "loader_sites"."""
    places = find(source, parts.get("roots", ()), parts.get("optimizers", ()))
    found = [_loader(profile, parts.get("loader_sites", ()))]
    found += [Edit(knobs=[knob], code="once", site="", edit=line) for knob, line in TOP.items() if profile.get(knob) == "on"]
    if threads := profile.get("cpu_threads"):
        found.append(Edit(knobs=["cpu_threads"], code="once", site="", edit=f"torch.set_num_threads({threads})"))
    if profile.get("compile") == RECORDED:  # torch's own way replays whatever has changed, and raises at a smaller batch
        found.append(Edit(knobs=["compile"], code="not-in-a-line", site="", edit="flatout run"))
    found += [_model(profile, path, places), _optimizer(profile, path, places), _precision(profile, path, places, device)]
    if profile.get("non_blocking") == "on":
        found.append(Edit(knobs=["non_blocking"], code="copies", site="", edit="non_blocking=True"))
    return [edit for edit in found if edit is not None]


def find(source: str, roots: Sequence[str], optimizers: Sequence[str]) -> Places:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return Places()
    model, model_line, optimizer, optimizer_line, backward = "model", 0, "", 0, 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and not model_line:
            if any(name in roots for name in _called(node.value)):
                model, model_line = node.targets[0].id, node.lineno
        elif isinstance(node, ast.Call):
            name = _name(node.func)
            if name in optimizers and not optimizer_line:
                optimizer, optimizer_line = name, node.lineno
            elif name == "backward" and not backward:
                backward = node.lineno
    return Places(
        model=model, model_line=model_line, optimizer=optimizer, optimizer_line=optimizer_line, backward_line=backward
    )


def _loader(profile: Values, sites: Sequence[str]) -> Edit | None:
    knobs = [knob for knob in LOADER if knob in profile]
    if not knobs:
        return None
    values = {"on": "True", "off": "False"}
    arguments = ", ".join(f"{LOADER[knob]}={values.get(profile[knob], profile[knob])}" for knob in knobs)
    return Edit(knobs=knobs, code="loader", site=next(iter(sites), ""), edit=f"DataLoader(…, {arguments})")


def _model(profile: Values, path: str, places: Places) -> Edit | None:
    knobs, value = [], places.model
    if profile.get("channels_last") == "on":
        knobs.append("channels_last")
        value = f"{value}.to(memory_format=torch.channels_last)"
    mode = profile.get("compile", "no")
    if mode not in ("no", RECORDED):
        knobs.append("compile")
        value = f"torch.compile({value})" if mode == "default" else f'torch.compile({value}, mode="{mode}")'
    if not knobs:
        return None
    return Edit(knobs=knobs, code="after", site=_site(path, places.model_line), edit=f"{places.model} = {value}")


def _optimizer(profile: Values, path: str, places: Places) -> Edit | None:
    if profile.get("fused_optimizer") != "on":
        return None
    name = places.optimizer or "torch.optim.…"
    return Edit(knobs=["fused_optimizer"], code="call", site=_site(path, places.optimizer_line), edit=f"{name}(…, fused=True)")


def _precision(profile: Values, path: str, places: Places, device: str) -> Edit | None:
    dtype = DTYPES.get(profile.get("precision", "no"))
    if dtype is None:
        return None
    code = "scaled" if profile["precision"] == "fp16" else "around"
    edit = f'with torch.autocast("{device}", dtype={dtype}):'
    return Edit(knobs=["precision"], code=code, site=_site(path, places.backward_line), edit=edit)


def _called(value: ast.expr) -> list[str]:
    """The names of all calls in an expression: `Net().to(device)` makes a Net."""
    return [_name(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)]


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _site(path: str, line: int) -> str:
    return f"{path}:{line}" if line else ""
