"""How long the user's run will be: by what was asked for, an earlier run of the same command, or the script's argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flatout.base import records
from flatout.base.errors import RecordError
from flatout.base.records import Missing, Struct, replace
from flatout.base.secrets import hide
from flatout.base.whole_number import whole_number
from flatout.launch.folder import records_of
from flatout.launch.own_argument import EPOCHS, LENGTH, Searched, find
from flatout.measure.model import Summary
from flatout.measure.promise import UNIT_STEPS

MOST_RECORDS = 50  # the newest; a folder may hold thousands
SUMMARY = "summary.json"
REFUTED = 0.05  # so far from what the script's argument seems to say, a whole run refutes it


class RunLength(Struct, frozen=True, kw_only=True):
    """`source`: asked (--steps-planned), earlier-run, own-argument, seen (a run to its end while tune confirmed)."""

    steps: int | None = None
    epochs: float | None = None  # None where the script has no loader with a length
    source: str


def find_length(line: Sequence[str], asked: int | None, ready: Mapping[str, Any], here: Path) -> RunLength | None:
    """`line` begins with the interpreter; None where nothing tells."""
    epoch_steps = steps_of_an_epoch(ready)
    if asked is not None:
        return by_steps(asked, epoch_steps, "asked")
    earlier = earlier_run(line, here)
    if earlier is not None:
        return _of_a_run(earlier, ready, epoch_steps)
    return by_argument(line, epoch_steps)


def by_steps(steps: int, epoch_steps: float | None, source: str) -> RunLength:
    return RunLength(steps=steps, epochs=steps / epoch_steps if epoch_steps else None, source=source)


def batches_of_an_epoch(ready: Mapping[str, Any]) -> int | None:
    """Of the script's training loader, where it has one: with several, they are drawn from in step."""
    return min((length for length in ready.get("loaders") or () if length), default=None)


def steps_of_an_epoch(ready: Mapping[str, Any]) -> float | None:
    """A script that accumulates gradients takes several batches for a step."""
    batches = batches_of_an_epoch(ready)
    return batches / (ready.get("batches_a_step") or 1.0) if batches is not None else None


def earlier_run(line: Sequence[str], here: Path) -> Summary | None:
    """The newest run of this command that came to its end."""
    return next((found for path in _newest(here) if (found := _ended(path, line)) is not None), None)


def _of_a_run(run: Summary, ready: Mapping[str, Any], epoch_steps: float | None) -> RunLength:
    """By its batches, where it tells of them: one that trains once for each fold goes through its data so often."""
    found, batches = by_steps(run.steps, epoch_steps, "earlier-run"), batches_of_an_epoch(ready)
    return replace(found, epochs=run.batches / batches) if run.batches and batches else found


def units_of(length: RunLength | None) -> float | None:
    """As the model of a run counts: epochs, else stretches of steps."""
    if length is None or (length.epochs is None and length.steps is None):
        return None
    return length.epochs if length.epochs is not None else (length.steps or 0) / UNIT_STEPS


def refuted_by(length: RunLength | None, seen: float) -> bool:
    """A script's argument is read and not understood: one that trains for each fold goes through so many epochs each time."""
    planned = units_of(length)
    if length is None or length.source != "own-argument" or planned is None:
        return False
    return abs(seen - planned) > REFUTED * planned


def kept_promises(line: Sequence[str], here: Path) -> list[float]:
    """Delivered ÷ promised, of this command's runs under a profile that came to their end: what its promises are missed by."""
    found = []
    for path in _newest(here):
        summary = _read(path)
        told = summary.promise if summary is not None and _is_of(summary, line) else None
        if told is not None and isinstance(told.ratio, float):
            found.append(told.ratio)
    return found


def plain_wall_s(line: Sequence[str], here: Path) -> float | None:
    """Of the newest run of this command that came to its end without any setting."""
    ended = (_ended(path, line) for path in _newest(here))
    plain = (one.wall_s for one in ended if one is not None and not one.knobs)
    return next(plain, None)


def _is_of(summary: Summary, line: Sequence[str]) -> bool:
    return summary.command[1:] == hide(list(line))[1:]


def _newest(here: Path) -> list[Path]:
    try:
        kept = records_of(here) / "runs"
    except OSError:  # in the state folder of a user without a home
        return []
    return sorted(kept.glob(f"*/{SUMMARY}"), key=lambda path: path.parent.name, reverse=True)[:MOST_RECORDS]


def _read(path: Path) -> Summary | None:
    try:
        return records.read(path, Summary)
    except RecordError:
        return None  # of a newer flatout, or damaged: it tells nothing


def _ended(path: Path, line: Sequence[str]) -> Summary | None:
    """None where it is the record of another command, or of a run that did not come to its end."""
    summary = _read(path)
    if summary is None or summary.exit_code != 0 or summary.steps <= 0:
        return None
    cut = any(note.code == "cut-short" for note in summary.notes)
    return summary if not cut and _is_of(summary, line) else None


def by_argument(line: Sequence[str], epoch_steps: float | None) -> RunLength | None:
    steps = _number(line, LENGTH)
    if steps is not None:
        return by_steps(steps, epoch_steps, "own-argument")
    epochs = _number(line, EPOCHS)
    if epochs is None:
        return None
    of_them = round(epochs * epoch_steps) if epoch_steps else None
    return RunLength(steps=of_them, epochs=float(epochs), source="own-argument")


def _number(line: Sequence[str], names: tuple[str, ...]) -> int | None:
    found = find(Searched(words=list(line[1:]), names=names))
    said = None if isinstance(found, Missing) else found.value
    return whole_number(said) or None
