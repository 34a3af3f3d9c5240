"""One confirmed run read: where its wall time went, as the parts that the model of a whole run knows. Pure."""

from __future__ import annotations

import math
from typing import Any

from _flatout_agent.wire import PHASES, TRAINING_PHASES
from flatout.base.records import Missing, Struct, replace
from flatout.measure import promise
from flatout.measure.attribution import ProcessStory, close_account, read_story
from flatout.measure.parts import parts_of
from flatout.measure.promise import Measured

Line = dict[str, Any]

FEWEST_STEPS = 20  # of a run that was ended early: fewer are its warm-up
FEWEST_STEADY = 6  # steps of the second half: fewer tell no steady speed
LEAST_LOOP_S = 10.0  # or so long: slow steps are few
NANO = 1e-9


class RunMade(Struct, frozen=True, kw_only=True):
    """What the parent knows of one run that tune made to confirm."""

    wall_s: float
    code: int | None  # exit status; None where it did not end in time
    journals: list[list[Line]]


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
    story, lines = told
    parts = parts_of(close_account(story.phases, run.wall_s, story.finished), story.script_outside_s)
    step_s, excess = _steady(story, lines)
    parts = {**parts, "building": parts["building"] + excess, "steps": parts["steps"] - excess}
    early = next((line for line in lines if line.get("kind") == "ended-early"), None)
    if early is not None and story.steps < FEWEST_STEPS and parts["turns"] + parts["steps"] < LEAST_LOOP_S:
        return Missing("too-few-steps")
    if early is None:
        return Measured(parts=parts, epochs=scale.units(story), step_s=step_s, put_on_step=_put_on_step(lines))
    return replace(_put_together(parts, story, early, scale, step_s), put_on_step=_put_on_step(lines))


def _lead(journals: list[list[Line]]) -> tuple[ProcessStory, list[Line]] | None:
    """The process that took most steps."""
    told = [(story, lines) for lines in journals if (story := read_story(lines)) is not None and story.steps]
    return max(told, key=lambda one: (one[0].steps, -one[0].rank), default=None)


def _put_on_step(lines: list[Line]) -> int | None:
    return next((int(line["step"]) for line in lines if line.get("kind") == "knobs"), None)


def _steady(story: ProcessStory, lines: list[Line]) -> tuple[float | Missing, float]:
    """A step of the second half, and what the first half took beyond such steps: the first calls, plans, recordings."""
    windows = [line for line in lines if line.get("kind") == "window" and line.get("steps")]
    if not windows or windows[-1]["steps"] != story.steps:
        return Missing("not-measured"), 0.0
    last = windows[-1]
    middle = next((line for line in windows if line["steps"] >= last["steps"] / 2), last)
    steps = last["steps"] - middle["steps"]
    if steps < FEWEST_STEADY:
        return Missing("not-measured"), 0.0
    before, after = _loop_s(middle), _loop_s(last)
    step_s = (after - before) / steps
    return step_s, max(0.0, before - step_s * middle["steps"])


def _loop_s(window: Line) -> float:
    """Spent in steps until then; of the script's own code only what comes with them."""
    named = dict(zip(PHASES, window["phases"], strict=True))
    outside = float(window.get("script_outside", 0))
    return (math.fsum(named[name] for name in TRAINING_PHASES) - outside) * NANO


def _put_together(parts: dict[str, float], story: ProcessStory, early: Line, scale: Scale, step_s: float | Missing) -> Measured:
    """One epoch from a part of it: as many steady steps as it has, and one turn with all that comes there."""
    steps, turns = scale.steps(story), int(early.get("turns") or 0)
    usual = step_s if isinstance(step_s, float) else parts["steps"] / story.steps
    if scale.batches is None or not turns:
        each = {name: parts[name] * steps / story.steps for name in promise.EACH}
    else:
        each = {name: parts[name] / turns for name in ("turns", "validation", "checkpoint", "script", "unexplained")}
    once = {name: parts[name] for name in promise.ONCE}
    return Measured(parts={**once, **each, "steps": steps * usual}, epochs=1.0, step_s=step_s, whole=False, turns=turns)
