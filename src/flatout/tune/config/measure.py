"""Knobs that were kept, as keys of a configuration; and the file itself measured, because a key is not the knob."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from flatout.base.records import Missing
from flatout.knobs import config_keys
from flatout.knobs.catalogue import RECORDED
from flatout.measure.statistics import Answer, Pair, compare
from flatout.tune.batch.command_line import BatchLine, Road
from flatout.tune.config.wishes import Change, How, State, Verification, Wish
from flatout.tune.search.arm_order import a_first, timed_steps, warm_steps
from flatout.tune.search.questions_and_answers import (
    BatchStory,
    Decision,
    Finished,
    Mode,
    Params,
    Plan,
    Segment,
    SegmentResult,
    Values,
)

PLACEHOLDER = "{config}"
PAIRS = 4
MOST_PAIRS = 7
TIMED_S = 1.0
FEWEST_STEPS = 3
MOST_SOURCES = 200
LARGEST_SOURCE = 1 << 20
DEEPEST, MOST_FOLDERS = 4, 500
FOREIGN = re.compile(r"\..*|__pycache__|site-packages|node_modules|v?env.*|conda.*", re.I)

# In this order: what needs workers comes after them.
WRITTEN = ("use_amp", "compile_model", "batch_size", "num_workers", "pin_memory", "persistent_workers", "prefetch_factor")
TRUTHS = {"on": True, "off": False}


def wishes_of(end: Finished) -> list[Wish]:
    """What the search kept and a configuration can say."""
    found = []
    for name in WRITTEN:
        knob = config_keys.BY_NAME[name].knob
        if knob in end.profile and (knob, end.profile[knob]) != ("compile", RECORDED):  # no script reads that
            decision = next((one for one in end.decisions if one.knob == knob and one.value == end.profile[knob]), None)
            found.append(_wish(name, end.profile[knob], decision))
    if "batch_size" in end.profile and end.batch is not None and end.batch.road == Road.CONFIGURATION and end.batch.rate_after:
        found.append(Wish(key="lr", value=end.batch.rate_after, code="rate-rule", params=_rule(end.batch), how=How.MEASURED))
    return found


def _rule(story: BatchStory) -> Params:
    return {"rule": story.rate_rule}


def sized(line: BatchLine, size: int) -> list[Wish]:
    """What a configuration says at another batch size, and nothing else."""
    wishes = [Wish(key="batch_size", value=size, code="kept", how=How.MEASURED)]
    rate = line.rate_at(size)
    return [*wishes, Wish(key="lr", value=rate, code="kept", how=How.MEASURED)] if rate is not None else wishes


def _wish(key: str, value: str, decision: Decision | None) -> Wish:
    meant: bool | int | str = int(value) if value.isdigit() else TRUTHS.get(value, value)
    ratio = None if decision is None or isinstance(decision.ratio, Missing) else decision.ratio
    if ratio is None:
        return Wish(key=key, value=meant, code="kept", how=How.MEASURED)
    return Wish(key=key, value=meant, code="kept-gain", params={"gain": round((ratio - 1) * 100, 1)}, how=How.MEASURED)


def remaining(profile: Values, changes: Sequence[Change]) -> Values:
    """Kept knobs that the file does not say: they stay in the profile."""
    said = {config_keys.BY_NAME[one.key].knob for one in changes if one.state in (State.CHANGED, State.INSERTED)}
    return {knob: value for knob, value in profile.items() if knob not in said}


def sources_of(script: Path | None) -> list[str]:
    """The script and what lies around it: which names it reads can only be told from there."""
    if script is None:
        return []
    texts = []
    for path in itertools.islice(itertools.chain([script], _beside(script.parent)), MOST_SOURCES):
        try:
            if path.stat().st_size <= LARGEST_SOURCE:
                texts.append(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
    return texts


def _beside(folder: Path) -> Iterator[Path]:
    """Other people's packages are not the script's own, and a home folder is large."""
    for visited, (here, folders, files) in enumerate(os.walk(folder)):
        deep = len(Path(here).relative_to(folder).parts) >= DEEPEST
        folders[:] = [] if deep else sorted(name for name in folders if not FOREIGN.fullmatch(name))
        yield from (Path(here, name) for name in sorted(files) if name.endswith(".py"))
        if visited > MOST_FOLDERS:
            return


def unread(ready: Mapping[str, Any], changes: Iterable[Change]) -> list[str]:
    """Keys that were changed without any effect in the running script: it does not read them, or means something else."""
    signs: dict[str, Callable[[Any], bool]] = {
        "use_amp": lambda after: ready.get("autocast") is not (after not in (False, "no", "32", 32)),
        "compile_model": lambda after: ready.get("compiled") is not (after is not False),
        "batch_size": lambda after: ready.get("batch_size") not in (after, None),
        "num_workers": lambda after: ready.get("workers") != after,
        "pin_memory": lambda after: ready.get("pin_memory") is not bool(after),
        "persistent_workers": lambda after: ready.get("persistent_workers") is not bool(after),
        "prefetch_factor": lambda after: ready.get("prefetch_factor") != after,
    }
    changed = [one for one in changes if one.state in (State.CHANGED, State.INSERTED) and one.key in signs]
    return [one.key for one in changed if signs[one.key](one.after)]


Told = Callable[[int, int], None]  # which pair, of how many


class Arm(Protocol):
    """`Trials` of one file."""

    def look(self) -> dict[str, Any] | None: ...
    def carry_out(self, segment: Segment) -> SegmentResult: ...
    def stop(self) -> None: ...


def verify(old: Arm, new: Arm, workers: Mapping[str, int], noise: float | Missing, told: Told) -> Verification:
    """The two files in turn, each time in a fresh child where the arm changes, with no knob on either."""
    pairs: list[Pair] = []
    comparison = compare(pairs, noise, (PAIRS,))
    try:
        # More than asked for only where the machine's own unrest cost a pair: what is found does not decide it.
        while len(pairs) < PAIRS or (comparison.answer is Answer.UNKNOWN and len(pairs) < MOST_PAIRS):
            number = len(pairs)
            told(number + 1, max(PAIRS, number + 1))
            old_first = not a_first(number, restarting=True)  # the new one's child is there already
            found = _pair({"old": old, "new": new}, workers, number, old_first)
            if isinstance(found, Verification):
                return found
            pairs.append(found)
            comparison = compare(pairs, noise, (PAIRS,))
    finally:
        old.stop()
        new.stop()
    return Verification(
        done=True,
        comparison=comparison,
        old_rate=sum(pair.a for pair in pairs) / len(pairs),
        new_rate=sum(pair.b for pair in pairs) / len(pairs),
    )


def _pair(arms: Mapping[str, Arm], workers: Mapping[str, int], number: int, old_first: bool) -> Pair | Verification:
    rates: dict[str, float] = {}
    for place, name in enumerate(("old", "new") if old_first else ("new", "old")):
        arms["new" if name == "old" else "old"].stop()
        result = arms[name].carry_out(segment(2 * number + place + 1, Plan(offers=[], workers=workers[name])))
        if result.fault or isinstance(result.rate, Missing) or result.steps < FEWEST_STEPS:
            return Verification(done=False, code=f"{name}-fails" if result.fault else "too-short")
        rates[name] = result.rate
    return Pair(rates["old"], rates["new"], old_first)


def segment(number: int, plan: Plan) -> Segment:
    """A plain one from the script's own loader; long enough that the batches which lay ready are gone."""
    unknown = Missing("not-measured")
    return Segment(
        id=number,
        knobs={},
        warm_steps=warm_steps(plan, {}, Mode.REAL, unknown),
        timed_s=TIMED_S,
        timed_steps=timed_steps(plan, {}, Mode.REAL, unknown),
        mode=Mode.REAL,
        restart=False,
        stage="final",
        trying=[],
    )
