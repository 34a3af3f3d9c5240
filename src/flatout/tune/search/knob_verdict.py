"""From a comparison to a decision that can be told in one line."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flatout.base.records import Missing
from flatout.knobs.catalogue import RECORDED
from flatout.measure.statistics import LEAST_GAIN, Answer, Comparison, Pair, plausible_gain
from flatout.tune.search.comparison import WORTH, Trial
from flatout.tune.search.questions_and_answers import Decision, Mode, Offer, Outcome, OutcomeState, Params, Verdict
from flatout.tune.search.search_state import Course

CHEAP_BUILD_S = 1.0
LEAST_AGAIN = 0.15  # of a build, with what the compiler has kept of it: the graph is traced and read again at least


def judge(course: Course, offer: Offer, value: str, trial: Trial, mode: Mode) -> Decision:
    """What becomes of a knob after its trial; what is kept joins the whole."""
    if offer.knob in trial.unapplied:
        return unapplied(course, offer, value, trial.unapplied[offer.knob])
    if trial.fault is not None:
        return course.decide(offer, value, "fault", {"status": trial.fault.value})
    found = trial.comparison
    if found is None or isinstance(found.ratio, Missing):
        return course.decide(offer, value, "too-little", {"pairs": len(trial.pairs)})
    if offer.builds and value != RECORDED:
        course.longest_build_s = max(trial.build_s, course.longest_build_s)
    seen = (found, mode)
    if trial.plainly_slower or found.answer is Answer.SLOWER:
        return course.decide(offer, value, "slower", {"gain": percent(found.ratio)}, seen)
    if trial.plainly_faster or found.answer is Answer.FASTER:
        return _faster(course, offer, value, trial, seen)
    if found.answer is Answer.UNKNOWN or trial.out_of_time:
        return course.decide(offer, value, "too-little", {"pairs": found.pairs}, seen)
    figures = gain_and_margin(found)
    if not shown_not_to_help(trial.pairs):
        return course.decide(offer, value, "unclear", {**figures, "pairs": found.pairs}, seen)
    # The larger of the machine's and these pairs' own: "-6 % ± 25, inside the noise (3 %)" would be a riddle.
    noise = max(round(100 * found.noise_floor, 1), float(figures["margin"]))
    return course.decide(offer, value, "inside-noise", {**figures, "noise": noise}, seen)


def shown_not_to_help(pairs: Sequence[Pair]) -> bool:
    """Whether a gain worth having is ruled out. What is merely inside the noise may still be one."""
    hope = plausible_gain(pairs)
    return isinstance(hope, float) and hope < WORTH


def unapplied(course: Course, offer: Offer, value: str, outcome: Outcome) -> Decision:
    if outcome.state is OutcomeState.ALREADY:
        return course.decide(offer, value, "already")
    return course.decide(offer, value, "refused", {**outcome.details, "why": outcome.code or "refused"})


def _faster(course: Course, offer: Offer, value: str, trial: Trial, seen: tuple[Comparison, Mode]) -> Decision:
    found, mode = seen
    params = gain_and_margin(found)
    code = "plainly-faster" if trial.plainly_faster else "faster"
    if trial.plainly_faster:
        params = {"gain": percent(found.ratio), "pairs": found.pairs}
    if offer.builds and trial.build_s > CHEAP_BUILD_S:
        repaid = repaid_steps(trial.build_s, trial.step_a_s, found.ratio)
        planned = course.plan.steps_planned
        if planned is not None and never_repaid(course, trial.build_s, trial, planned):
            return course.decide(offer, value, "not-repaid", not_repaid(found, trial.build_s, repaid, planned), seen)
        params = {**params, "build_s": round(trial.build_s, 1), "repaid_steps": repaid}
        ending = "repaid" if planned is None or repaid <= planned else "if-kept"
        course.unpaid = course.unpaid | {offer.knob} if ending == "if-kept" else course.unpaid - {offer.knob}
        decision = course.decide(offer, value, f"{code}-{ending}", params, seen)
    else:
        course.unpaid -= {offer.knob}
        decision = course.decide(offer, value, code, params, seen)
    _replace_other_value(course, offer, value, float(params["gain"]))
    course.keep(offer.knob, value)
    if offer.builds:
        course.build_s[offer.knob] = trial.build_s if value == RECORDED else course.longest_build_s
    if mode is course.judging:
        course.pace = trial.pace
    course.first_gain.setdefault(offer.knob, percent(found.ratio))
    return decision


def _replace_other_value(course: Course, offer: Offer, value: str, gain: float) -> None:
    before = course.whole.get(offer.knob)
    if before is not None and before != value and course.tried(offer.knob, before):
        course.decide(offer, before, "better-value", {"other": value, "gain": gain})


def never_repaid(course: Course, build_s: float, trial: Trial, planned: int) -> bool:
    """Also not with what the compiler keeps, which later runs find: at the price that was seen in a fresh child, else at the
    least that it can be. Between that and the first price the whole runs decide that confirm a profile."""
    if trial.comparison is None:
        return False
    again_s = LEAST_AGAIN * build_s if course.rebuilt_s is None else min(build_s, course.rebuilt_s)
    return repaid_steps(again_s, trial.step_a_s, trial.comparison.ratio) > planned


def not_repaid(found: Comparison, build_s: float, repaid: int, planned: int) -> Params:
    return {"gain": percent(found.ratio), "build_s": round(build_s, 1), "repaid_steps": repaid, "steps_planned": planned}


def repaid_steps(build_s: float, step_s: float | Missing, ratio: float | Missing) -> int:
    """Steps after which what was spent once has come back; a very large number where it never does."""
    if isinstance(step_s, Missing) or isinstance(ratio, Missing) or ratio <= 1:
        return 10**9
    return math.ceil(build_s / (step_s * (1 - 1 / ratio)))


def still_earns(course: Course, offer: Offer, trial: Trial, mode: Mode) -> bool:
    """After a knob was left out of the whole once (B is the whole): whether it stays."""
    value = course.whole[offer.knob]
    found = trial.comparison
    if found is None or trial.fault is not None or isinstance(found.ratio, Missing):
        return True  # nothing new was learned: what was shown before stands
    first = course.first_gain.get(offer.knob, 0.0)
    shown = trial.plainly_faster or found.answer is Answer.FASTER
    lost: Params = {"gain": percent(found.ratio), "first_gain": first}
    if trial.plainly_slower or found.answer is Answer.SLOWER or (not shown and found.ratio < 1 + LEAST_GAIN):
        course.decide(offer, value, "no-longer-earns", lost, (found, mode))
        return False
    build_s, planned = course.build_s.get(offer.knob, 0.0), course.plan.steps_planned
    repaid = repaid_steps(build_s, trial.step_a_s, found.ratio) if build_s else 0
    if planned is not None and build_s and never_repaid(course, build_s, trial, planned):
        course.decide(offer, value, "not-repaid", not_repaid(found, build_s, repaid, planned), (found, mode))
        return False
    if found.answer is Answer.FASTER:
        course.decide(offer, value, "still-earns", {**gain_and_margin(found), "first_gain": first}, (found, mode))
    return True


def percent(ratio: float | Missing) -> float:
    return round(100 * (ratio - 1), 1) if isinstance(ratio, float) else 0.0


def gain_and_margin(found: Comparison) -> Params:
    """Both in per cent: "+71 % ± 3". The margin is that on the side of no gain: intervals of ratios are longer on the other."""
    if isinstance(found.ratio, Missing) or isinstance(found.lower, Missing) or isinstance(found.upper, Missing):
        return {"gain": percent(found.ratio), "margin": 0.0}
    to_bound = found.ratio - found.lower if found.ratio >= 1 else found.upper - found.ratio
    return {"gain": percent(found.ratio), "margin": round(100 * to_bound, 1)}


def is_settled(decision: Decision) -> bool:
    """Whether everything that could be known about this knob is: unknowns and faults leave a doubt."""
    return decision.verdict not in (Verdict.UNKNOWN, Verdict.FAILED)
