"""What each knob gives on each specimen, with its interval: gains.py --out gains.json [--only vision] [--knob precision]

Segments of the script as it is (A) and with the knob (B) in turn, inside one running child where the knob can be switched hot,
in two that take turns where it cannot: the other one waits at its step meanwhile. The table goes to standard output and beside
the record as markdown. A knob that had no effect has no gain either: its reason stands in the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

from asking import Asking

from flatout.base.clock import SystemClock
from flatout.base.records import Missing, dump
from flatout.knobs import catalogue
from flatout.knobs.model import Switch
from flatout.launch.protection import Unprotected
from flatout.measure.statistics import Pair, compare, spread_of_pairs
from flatout.tune.execution.trial_runner import Trials
from flatout.tune.search.arm_order import a_first
from flatout.tune.search.questions_and_answers import Mode, OutcomeState, Status

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SPECIMENS = ("behavior", "gpt", "restoration", "vision")
LONG = {"behavior": ["--epochs", "1000"], "gpt": ["--steps", "1000000"], "restoration": ["--epochs", "1000"]}
LONG["vision"] = ["--epochs", "1000"]

# What a knob needs to have any effect: on in both arms.
NEEDS = {
    "persistent_workers": {"workers": "4"},
    "prefetch_factor": {"workers": "4"},
    "pin_memory": {"workers": "8"},
    "non_blocking": {"workers": "8", "pin_memory": "on"},
    "device_prefetch": {"workers": "8", "pin_memory": "on"},
}
VALUES = {
    "precision": ("bf16", "fp16"),
    "compile": ("default", "reduce-overhead", "graphs"),
    "workers": ("4", "8"),
    "prefetch_factor": ("4",),
    "cpu_threads": ("1", "2"),
    "allocator": ("expandable", "roundup"),
}
# What shows where epochs turn is timed over whole ones, and short ones: else it would be hidden, and take minutes.
OVER_EPOCHS = ("persistent_workers",)
SHORT = {"behavior": ["--train-size", "2048"], "restoration": ["--train-size", "800"], "vision": ["--train-size", "2048"]}
# Their steps in float32 are long: what is not about computing is measured beside what makes them short.
BESIDE = {"gpt": {"precision": "bf16"}, "vision": {"precision": "bf16"}}
# Where the loader is the wall these show nothing in the loop: on kept batches.
COMPUTE = ("precision", "tf32", "channels_last", "fused_optimizer", "compile", "cudnn_benchmark", "gc_policy", "cpu_threads")


def cases(only: list[str], hot: bool, values: list[str]) -> list[tuple[str, str, Mode]]:
    """(knob, value, where its batches come from)"""
    found = []
    for knob in catalogue.KNOBS:
        if knob.name == "batch_size" or (only and knob.name not in only) or (hot and knob.switch is Switch.RESTART):
            continue
        mode = Mode.REPLAY_HOST if knob.name in COMPUTE else Mode.REAL
        found += [(knob.name, value, mode) for value in VALUES.get(knob.name, ("on",)) if not values or value in values]
    return found


class Arms:
    """Asks for one segment after another; a fault ends the case, not the program."""

    def __init__(self, plain: Trials, fresh: Trials, short: Trials, timed_s: float) -> None:
        self._plain = Asking(plain, timed_s)
        self._fresh = Asking(fresh, timed_s)  # for what must be there from the start
        self._short = Asking(short, timed_s)  # of short epochs

    def run(self, knobs: dict[str, str], mode: Mode, name: str, warm: int = 4) -> object:
        if name in OVER_EPOCHS:
            return self._short.result(knobs, mode, warm, epochs=1)
        return (self._fresh if any(map(restarts, knobs)) else self._plain).result(knobs, mode, warm)


def measure(arms: Arms, name: str, knob: str, value: str, mode: Mode, pairs: int) -> dict[str, object]:
    base = {**NEEDS.get(knob, {}), **({} if mode is Mode.REPLAY_HOST else BESIDE.get(name, {}))}
    wanted = {**base, knob: value}
    told: dict[str, object] = {"knob": knob, "value": value, "mode": mode.value, "base": base}
    if restarts(knob):
        arms.run(base, mode, knob, warm=24)
    first = arms.run(wanted, mode, knob, warm=24)  # builds what must be built, and shows whether there is an effect
    why = reason(first, knob)
    if why:
        return {**told, "not_applied": why}
    measured, plain = [], []
    for number in range(pairs):
        order = [base, wanted] if a_first(number, restarting=False) else [wanted, base]
        rates = {}
        for knobs in order:
            result = arms.run(knobs, mode, knob)
            if isinstance(result.rate, Missing) or result.fault:
                return {**told, "not_applied": f"{result.status.value} {result.code}".strip()}
            rates[knobs is wanted] = result.rate
        plain.append(rates[False])
        measured.append(Pair(a=rates[False], b=rates[True], a_first=order[0] is base))
    seen = compare(measured, spread_of_pairs(plain), looks=(pairs,))
    proof = {name: dump(outcome) for name, outcome in first.outcomes.items()}.get(knob)
    rates = {"a": [pair.a for pair in measured], "b": [pair.b for pair in measured]}
    return {**told, "comparison": dump(seen), "rates": rates, "proof": proof, "build_s": first.build_s}


def restarts(knob: str) -> bool:
    found = catalogue.find(knob)
    return found is not None and found.switch is Switch.RESTART


def reason(result: object, knob: str) -> str:
    if result.fault or result.status is Status.REFUSED:
        return f"{result.status.value} {result.code}".strip()
    outcome = result.outcomes.get(knob)
    if outcome is None:
        return "no outcome"
    return "" if outcome.state is OutcomeState.APPLIED else f"{outcome.state.value}: {outcome.code}"


def specimen(name: str, asked: argparse.Namespace, folder: Path) -> list[dict[str, object]]:
    small = ["--small"] if asked.small else []
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *small, *LONG[name]]
    rows = []
    (folder / name).mkdir()
    here = Path.cwd()
    os.chdir(folder / name)  # what it writes goes there: no sandbox is needed
    try:
        with contextlib.ExitStack() as stack:
            sandbox = stack.enter_context(Unprotected())
            commands = {"plain": command, "fresh": command, "short": [*command, *SHORT.get(name, [])]}
            arms = Arms(
                *(stack.enter_context(children(started, sandbox, folder / log)) for log, started in commands.items()),
                asked.timed,
            )
            for knob, value, mode in cases(asked.knob, asked.hot, asked.value):
                row = {"specimen": name, **measure(arms, name, knob, value, mode, asked.pairs)}
                rows.append(row)
                print(line(row), flush=True)
    finally:
        os.chdir(here)
    return rows


def children(command: list[str], sandbox: Unprotected, log: Path) -> Trials:
    return Trials(command, os.environ, sandbox, SystemClock(), log)


def line(row: dict[str, object]) -> str:
    name = f"| {row['specimen']} | {row['knob']}={row['value']} | {row['mode']} | "
    if "not_applied" in row:
        return name + f"not applied: {row['not_applied']} | | |"
    found = row["comparison"]
    if not isinstance(found["lower"], float):
        return name + f"x{found['ratio']:.3f} | too few pairs | {found['answer']} |"
    return name + f"x{found['ratio']:.3f} | {found['lower']:.3f} to {found['upper']:.3f} | {found['answer']} |"


HEAD = ["| specimen | knob | batches | throughput | 95 % interval | |", "|---|---|---|---|---|---|"]


def machine() -> dict[str, object]:
    import torch

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return {"card": card, "torch": torch.__version__, "cores": os.cpu_count(), "python": platform.python_version()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the record, as JSON; the table goes beside it as .md")
    parser.add_argument("--only", action="append", choices=SPECIMENS, default=[])
    parser.add_argument("--knob", action="append", default=[])
    parser.add_argument("--value", action="append", default=[])
    parser.add_argument("--hot", action="store_true", help="only knobs that are switched inside a running child")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--timed", type=float, default=1.0, help="seconds of a segment")
    parser.add_argument("--small", action="store_true", help="models for the CPU")
    asked = parser.parse_args()
    out = asked.out.resolve()
    rows: list[dict[str, object]] = []
    print("\n".join(HEAD))
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.only or SPECIMENS:
            rows += specimen(name, asked, Path(folder))
            out.write_text(json.dumps({"machine": machine(), "pairs": asked.pairs, "rows": rows}, indent=1))
    out.with_suffix(".md").write_text("\n".join([*HEAD, *map(line, rows)]) + "\n")


if __name__ == "__main__":
    main()
