"""Runs the parity check at the end of a search, prints its result and saves its picture."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flatout.base import records
from flatout.base.words import Words
from flatout.knobs.model import Numerics

if TYPE_CHECKING:
    from flatout.measure.parity import Parity
    from flatout.tune.confirmation.parity_runs import Gate
    from flatout.tune.execution.trial_runner import Trials
    from flatout.tune.search.questions_and_answers import Finished
    from flatout.tune.search.time_budget import Costs

RECORD, FAILED, PICTURE = "parity.json", "parity-failed.json", "parity.svg"


class Screen(Protocol):
    words: Words

    def say(self, sentence: str) -> None: ...
    def hint(self, sentence: str) -> None: ...


def passed(end: Finished, trials: Trials, place: Path, screen: Screen) -> Finished:
    """What changes the rounding is kept only if the training learns the same; "unknown" is said, and kept back."""
    from flatout.measure.parity import Verdict
    from flatout.report import parity as report
    from flatout.tune.confirmation.parity_runs import Gate

    # Batches of another size make other losses: both sides of the comparison have the same.
    batch = {name: value for name, value in end.profile.items() if name == "batch_size"}
    others = {name: value for name, value in end.profile.items() if name != "batch_size"}
    numerics = trials.ready.get("numerics", {})
    drawing = {name for name, found in numerics.items() if found == Numerics.RESAMPLED}
    build_s = sum(end.build_s.values())
    gate = Gate(
        lambda knobs, steps, seed, draws: trials.curve({**batch, **knobs}, steps, seed, draws, build_s),
        lambda what: screen.hint(screen.words("tune.parity-running", what=what)),
        drawing,
    )
    knobs, parity, taken = gate.repaired(others)
    records.write_bytes(place / RECORD, records.encode(parity))
    if gate.failed is not None:
        records.write_bytes(place / FAILED, records.encode(gate.failed))
    for sentence in report.sentences(parity, gate.failed, taken, sorted(drawing & knobs.keys()), screen.words):
        screen.say(sentence)
    if batch:
        screen.say(screen.words("parity.batch-apart", batch=batch["batch_size"]))
    draw(gate, parity, place, screen)
    return records.replace(end, profile={**knobs, **batch} if parity.verdict is Verdict.PASS else {}, parity=parity)


def expected_s(costs: Costs) -> float:
    """Where what is kept passes at once."""
    from flatout.tune.confirmation.parity_runs import SEEDS, STEPS

    return 2 * SEEDS * (costs.start_s + STEPS * costs.step_s)


def checked_if_faster(
    end: Finished, confirmed: Callable[[Finished], Finished], trials: Trials, place: Path, screen: Screen
) -> Finished:
    """Only of what whole runs found faster: each curve is a training. What is left after a repair is confirmed by itself."""
    if not end.profile:
        return end
    found = passed(end, trials, place, screen)
    known = end.whole_run is not None and end.whole_run.code == "confirmed"
    return confirmed(found) if known and found.profile and found.profile != end.profile else found


def draw(gate: Gate, parity: Parity, place: Path, screen: Screen) -> None:
    """The curves of the check that failed, or of the last; nothing else hangs on the picture."""
    from flatout.report import parity as report

    if gate.pairs:
        with contextlib.suppress(OSError, ArithmeticError, ValueError):
            records.write_bytes(place / PICTURE, report.picture(gate.pairs, gate.failed or parity, screen.words).encode())
            screen.say(screen.words("parity.picture", path=str(place / PICTURE)))
