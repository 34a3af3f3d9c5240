"""One script in one child, asked for segments by hand: what `flatout tune` does, without its search."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from flatout.base.clock import SystemClock
from flatout.base.records import Missing
from flatout.knobs import profile_file
from flatout.launch.protection import Unprotected
from flatout.measure.statistics import Comparison, Pair, compare, spread_of_pairs
from flatout.tune.execution.trial_runner import Trials
from flatout.tune.search.arm_order import a_first
from flatout.tune.search.questions_and_answers import Mode, Segment, SegmentResult, Values

SETTLING = 24  # steps


class Asking:
    def __init__(self, trials: Trials, timed_s: float) -> None:
        self._trials = trials
        self._timed_s = timed_s
        self._count = 0

    def result(self, knobs: Values, mode: Mode, warm: int = SETTLING, epochs: int = 0) -> SegmentResult:
        self._count += 1
        return self._trials.carry_out(
            Segment(
                id=self._count,
                knobs=knobs,
                warm_steps=warm,
                timed_s=self._timed_s,
                timed_steps=4,
                mode=mode,
                restart=False,
                stage="gains",
                trying=[],
                epochs=epochs,
            )
        )

    def rate(self, knobs: Values, mode: Mode, warm: int = SETTLING) -> float | Missing:
        """Samples per second; what went wrong is said on the error stream."""
        result = self.result(knobs, mode, warm)
        if isinstance(result.rate, Missing):
            print(f"{knobs} {mode.value}: {result.status.value} {result.code}", file=sys.stderr)
        return result.rate

    def compare(self, a: tuple[Values, Mode], b: tuple[Values, Mode], pairs: int) -> tuple[Comparison, list[Pair]]:
        """B ÷ A, in turn."""
        measured = []
        for number in range(pairs):
            first = a_first(number, restarting=False)
            rates = {arm: self.rate(*(a if arm == "a" else b)) for arm in (("a", "b") if first else ("b", "a"))}
            if isinstance(rates["a"], float) and isinstance(rates["b"], float):
                measured.append(Pair(rates["a"], rates["b"], first))
                # What is cut off is not lost.
                print(f"pair {len(measured)}: {rates['a']:.1f} {rates['b']:.1f}", file=sys.stderr, flush=True)
        return compare(measured, spread_of_pairs([pair.a for pair in measured]), looks=(pairs,)), measured


@contextlib.contextmanager
def asking(script: Path, words: list[str], timed_s: float) -> Iterator[Asking]:
    """The working folder is the script's meanwhile: what it writes lies there."""
    here = Path.cwd()
    os.chdir(script.parent)
    try:
        with tempfile.TemporaryDirectory() as folder, Unprotected() as sandbox:
            command = [sys.executable, str(script), *words]
            with Trials(command, os.environ, sandbox, SystemClock(), Path(folder) / "log") as trials:
                yield Asking(trials, timed_s)
    finally:
        os.chdir(here)


def of_a_profile(measure: Callable[[Asking, Values], dict[str, object]], timed_s: float, hidden: tuple[str, ...]) -> None:
    """PROGRAM OUT.json SCRIPT [ARGUMENTS]: with the profile beside the script. All of it is written, most of it shown."""
    out, script = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    profile = profile_file.read(script.parent / profile_file.NAME).knobs
    with asking(script, sys.argv[3:], timed_s) as asked:
        found = measure(asked, profile)
    out.write_text(json.dumps({"script": script.name, "profile": profile, **found}, indent=1))
    print(json.dumps({name: value for name, value in found.items() if name not in hidden}))
