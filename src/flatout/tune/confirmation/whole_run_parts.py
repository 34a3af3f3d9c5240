"""One confirmed run read: where its wall time went, as the parts that the model of a whole run knows. Pure."""

from __future__ import annotations

from typing import Any

from _flatout_agent.wire import PHASES
from flatout.base.records import Missing, Struct, replace
from flatout.knobs.model import Came
from flatout.measure import promise, recurring
from flatout.measure.knob_use import Story, came
from flatout.measure.parts import parts_of
from flatout.measure.process_journals import ProcessStory, close_account, in_the_parent, read_story
from flatout.measure.promise import Measured
from flatout.measure.recurring import Recurring

Line = dict[str, Any]

FEWEST_STEPS = 8  # after the settling: fewer tell no steady speed
LEAST_LOOP_S = 10.0  # or so long: slow steps are few
NANO = 1e-9
AT_THE_END = ("validation", "checkpoint", "script")  # what comes there beside the turn itself
LITTLE = 0.2  # of what comes at a turn: one validation is longer than the next
SAVING = "checkpoint"
LEAST_SHARE = 0.1  # of what saving took: at least so much is the script's own
NEVER = (0, 0, 0, 0)  # of what recurs: count, nanoseconds, first and last step


class RunMade(Struct, frozen=True, kw_only=True):
    """What the parent knows of one run that tune made to confirm."""

    wall_s: float
    code: int | None  # exit status; None where it did not end in time
    journals: list[list[Line]]
    read_bytes: int = 0  # from the disk
    slower_a_byte: float = 0.0  # seconds: what writing a checkpoint takes longer in a trial than in the user's run


class Scale(Struct, frozen=True, kw_only=True):
    """What one unit of the model is: an epoch of so many batches, or a stretch of steps where there is no loader."""

    batches: float | None  # of an epoch

    def units(self, story: ProcessStory) -> float:
        if self.batches is None or not story.batches:
            return story.steps / promise.UNIT_STEPS
        return story.batches / self.batches

    def steps(self, story: ProcessStory) -> float:
        """Of one unit."""
        if self.batches is None or not story.batches:
            return float(promise.UNIT_STEPS)
        return self.batches * story.steps / story.batches


def measured(run: RunMade, scale: Scale) -> Measured | Missing:
    """Missing where the run failed, did not end, or took no step."""
    if run.code is None:
        return Missing("did-not-end")
    if run.code != 0:
        return Missing("failed", str(run.code))
    told = _lead(run.journals)
    if told is None:
        return Missing("no-steps")
    story, lines, later = told
    closed = close_account(story.phases, run.wall_s, story.finished, later)
    parts = parts_of(closed, story.script_outside_s)
    in_parent = {name: max(0.0, closed[name] - story.phases[name]) for name in later}
    loop = _settled(story, lines)
    step_s = loop.step_s if loop is not None else Missing("not-measured")
    if loop is not None:
        parts = {**parts, "building": parts["building"] + loop.before_s, "steps": parts["steps"] - loop.before_s}
    if not any(line.get("kind") == "ended-early" for line in lines):
        found = Measured(parts=parts, epochs=scale.units(story), tail=_ending(lines, scale, in_parent))
    elif loop is None:
        return Missing("too-few-steps")
    else:
        found = _put_together(parts, loop, scale.steps(story), scale)
    found = replace(
        found,
        step_s=step_s,
        recurring=loop.recurring if loop is not None else {},
        unit_steps=scale.steps(story),
        read_bytes=run.read_bytes,
        put_on_step=_put_on_step(lines),
        workers=_workers(lines),
        refused=_refused(lines),
        taken_back=sorted(Story(lines).taken_back),
    )
    return _with_saving(found, _share_outside(lines, story.phases[SAVING], run.slower_a_byte))


def saves(lines: list[Line]) -> Line:
    """The files that `torch.save` wrote: their bytes, those of the largest, and its path."""
    last = next((line for line in reversed(lines) if line.get("kind") == "window"), {})
    return last.get("saves") or {"bytes": 0, "largest": 0, "path": ""}


def _share_outside(lines: list[Line], spent_s: float, slower_a_byte: float) -> float:
    """What saving would have taken outside, of what it took."""
    return max(LEAST_SHARE, 1 - slower_a_byte * saves(lines)["bytes"] / spent_s) if spent_s > 0 else 1.0


def _with_saving(found: Measured, share: float) -> Measured:
    """With this share of what saving took, wherever it is told of."""
    shares = {SAVING: share}
    parts, tail = ({name: shares.get(name, 1.0) * s for name, s in spent.items()} for spent in (found.parts, found.tail))
    seen = {name: replace(one, each_s=share * one.each_s) if name == SAVING else one for name, one in found.recurring.items()}
    return replace(found, parts=parts, tail=tail, recurring=seen)


class Loop(Struct, frozen=True, kw_only=True):
    """The loop from when it had settled to its end; what recurs within epochs is not in its parts."""

    parts: dict[str, float]
    steps: int
    turns: int
    of_a_turn: dict[str, float]  # with the validation, the checkpoint and what else comes there
    step_s: float
    recurring: dict[str, Recurring]
    before_s: float  # what the steps until then took beyond such steps: first calls, plans, recordings, workers


def _settled(story: ProcessStory, lines: list[Line]) -> Loop | None:
    """None where it took too few steps since."""
    mark = next((line for line in lines if line.get("kind") == "settled"), None)
    last = next((line for line in reversed(lines) if line.get("kind") == "window"), None)
    if mark is None or last is None:
        return None
    steps = last["steps"] - mark["steps"]
    parts = _between(mark, last)
    if steps < 1 or (steps < FEWEST_STEPS and parts["steps"] < LEAST_LOOP_S):
        return None
    step_s = parts["steps"] / steps
    more_s = max(0.0, _parts(mark)["steps"] - step_s * mark["steps"])
    return Loop(
        parts=parts,
        steps=steps,
        turns=last["turns"] - mark["turns"],
        of_a_turn=_of_a_turn(mark, last, lines),
        step_s=step_s,
        recurring=_recurring(mark, last),
        before_s=more_s,
    )


def _of_a_turn(mark: Line, last: Line, lines: list[Line]) -> dict[str, float]:
    """Empty where none was met."""
    began = _turns_from(mark, last, lines)
    turns = last["turns"] - began["turns"]
    return {name: spent / turns for name, spent in _between(began, last).items()} if turns > 0 else {}


def _turns_from(mark: Line, last: Line, lines: list[Line]) -> Line:
    """The later turns count, where there are any: the first pays for what happens once."""
    first = next((line for line in lines if line.get("kind") == "turned"), mark)
    return first if last["turns"] > first["turns"] else mark


def _between(mark: Line, last: Line) -> dict[str, float]:
    """By part, without what recurs within epochs."""
    before, after, apart = _parts(mark), _parts(last), _recurred_s(mark, last)
    return {name: after[name] - before[name] - apart.get(name, 0.0) for name in after}


def _recurring(mark: Line, last: Line) -> dict[str, Recurring]:
    early, late = mark.get("recurring") or {}, last.get("recurring") or {}
    found = {name: recurring.read(told, early.get(name) or NEVER, last["steps"]) for name, told in late.items()}
    return {name: one for name, one in found.items() if one is not None}


def _recurred_s(mark: Line, last: Line) -> dict[str, float]:
    """Seconds of it since the loop had settled."""
    early, late = mark.get("recurring") or {}, last.get("recurring") or {}
    return {name: (told[1] - (early.get(name) or NEVER)[1]) * NANO for name, told in late.items()}


def _parts(told: Line) -> dict[str, float]:
    named = {name: value * NANO for name, value in zip(PHASES, told["phases"], strict=True)}
    return parts_of(named, told.get("script_outside", 0) * NANO)


def _lead(journals: list[list[Line]]) -> tuple[ProcessStory, list[Line], dict[str, float]] | None:
    """The process that took most steps, and what its parent did when it had ended."""
    told = [(story, lines) for lines in journals if (story := read_story(lines)) is not None]
    trained = [one for one in told if one[0].steps]
    if not trained:
        return None
    story, lines = max(trained, key=lambda one: (one[0].steps, -one[0].rank))
    return story, lines, in_the_parent([one for one, _ in told])


def _put_on_step(lines: list[Line]) -> int | None:
    return next((int(line["step"]) for line in lines if line.get("kind") == "knobs"), None)


def _workers(lines: list[Line]) -> dict[str, Any]:
    proof = Story(lines).proofs.get("workers") or {}
    return dict(proof.get("details") or {}) if proof.get("status") == "applied" else {}


def _ending(lines: list[Line], scale: Scale, in_parent: dict[str, float]) -> dict[str, float]:
    """What came once, after the last epoch: in the process that trained, and in its parent when that had ended."""
    tail = _tail(lines) if scale.batches is not None else {}
    return {**tail, **{name: tail.get(name, 0.0) + spent for name, spent in in_parent.items()}}


def _tail(lines: list[Line]) -> dict[str, float]:
    """What a run that came to its end did after its last epoch was over, by part: a final test, say. It is what came after the
    last turn beyond what had come at each turn before; empty where no turn was seen. What recurs within epochs is none of it:
    it is counted by itself."""
    mark = next((line for line in lines if line.get("kind") == "settled"), None)
    windows = [line for line in lines if line.get("kind") == "window"]
    if mark is None or len(windows) < 2:
        return {}
    most = max(line["turns"] for line in windows[:-1])
    turned, last = next(line for line in windows if line["turns"] == most), windows[-1]
    if most <= mark["turns"]:
        return {}
    began = _turns_from(mark, turned, lines)
    until, since = _between(began, turned), _between(turned, last)
    each = {name: until[name] / (most - began["turns"]) for name in AT_THE_END}
    ends = 1 + last["turns"] - most
    beyond = {name: max(0.0, since[name] - ends * each[name]) for name in AT_THE_END}
    return beyond if sum(beyond.values()) > LITTLE * sum(each.values()) else {}


def _refused(lines: list[Line]) -> dict[str, str]:
    """As a later run would tell of them: what was kept and did not come on."""
    story = Story(lines)
    told = {name: came(name, story) for name in story.outcomes}
    return {name: code for name, (what, code, _) in told.items() if what is Came.REFUSED}


def _put_together(parts: dict[str, float], loop: Loop, steps: float, scale: Scale) -> Measured:
    """One epoch of so many steps: steady ones, and one turn with all that comes there."""
    by_steps = {name: loop.parts[name] * steps / loop.steps for name in promise.EACH}
    each = {name: loop.of_a_turn[name] for name in promise.EACH} if scale.batches is not None and loop.turns else by_steps
    once = {name: parts[name] for name in promise.ONCE}
    turns = loop.turns if scale.batches is not None else 0
    return Measured(parts={**once, **each, "steps": steps * loop.step_s}, epochs=1.0, whole=False, turns=turns)
