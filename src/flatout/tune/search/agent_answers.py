"""What an agent tells, as the search reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.base.records import Missing
from flatout.knobs.model import Numerics
from flatout.measure.ordinary_steps import centre, centre_by_device, set_apart
from flatout.tune.search.questions_and_answers import Outcome, OutcomeState, SegmentResult, Status

FEWEST_LOOKS = 5
NANO = 1e-9
ONCE = frozenset({"compile", "settings"})  # phases of our own making


def result_of(answer: Mapping[str, Any], took_s: float) -> SegmentResult:
    outcomes = {name: outcome_of(told) for name, told in (answer.get("outcomes") or {}).items()}
    seconds, aside_s = float(answer.get("seconds", 0.0)), float(answer.get("aside_s", 0.0))
    times, waits = answer.get("step_times") or [], answer.get("step_waits") or []
    far, grouped = set_apart(times, waits), max(1, round(int(answer.get("steps", 0)) / max(1, len(times))))
    middle = centre_by_device(times, waits) if answer.get("by_device") else centre(times, waits)
    # What the clock has kept apart already is not subtracted twice.
    beyond = max(0.0, far.seconds - aside_s)
    aside = {str(name): float(spent) for name, spent in (answer.get("aside") or {}).items()}
    return SegmentResult(
        id=answer["id"],
        status=Status(answer["status"]),
        took_s=took_s,
        samples=float(answer.get("samples", 0)),
        seconds=seconds - beyond,
        steps=int(answer.get("steps", 0)),
        aside=aside,
        centre_s=Missing("too-few-steps") if middle is None else middle / grouped,
        recurring_s=beyond + sum(spent for name, spent in aside.items() if name not in ONCE),
        recurring=far.steps,
        drained=float(answer.get("drained", 0.0)),
        phases=dict(answer.get("phases") or {}),
        outcomes=outcomes,
        classes={name: Numerics(found) for name, found in (answer.get("classes") or {}).items()},
        memory_peak=answer.get("memory_peak", Missing("not-reported")),
        memory_allocated=answer.get("memory_allocated", Missing("not-reported")),
        alloc_retries=int(answer.get("alloc_retries", 0)),
        epoch_ended=bool(answer.get("epoch_ended")),
        starved=_mean_look(answer.get("lag"), "starved"),
        behind_s=_mean_look(answer.get("lag"), "mid_ns", NANO),
        build_s=float(answer.get("build_s", 0.0)),
        code=str(answer.get("code", "")),
    )


def outcome_of(told: Mapping[str, Any]) -> Outcome:
    return Outcome(state=OutcomeState(told["status"]), code=told["code"], details=_params(told["details"]))


def _mean_look(lag: Mapping[str, int] | None, name: str, unit: float = 1.0) -> float | Missing:
    return lag[name] * unit / lag["count"] if lag and lag["count"] >= FEWEST_LOOKS else Missing("not-reported")


def _params(details: Mapping[str, Any]) -> dict[str, str | int | float]:
    return {name: value if isinstance(value, str | int | float) else str(value) for name, value in details.items()}


def batch_outcome(wanted: float, loader: tuple[int | None, int | None], per_step: tuple[float | None, float | None]) -> Outcome:
    """Whether the batch grew by the wanted factor; `loader` and `per_step` hold what is seen now, and in the plain script."""
    for (now, plain), slack in ((loader, 0.02), (per_step, 0.25)):  # the last batch of an epoch may be smaller
        if now and plain:
            fits = abs(now / plain / wanted - 1) <= slack
            details: dict[str, str | int | float] = {"seen": round(now), "plain": round(plain)}
            return Outcome(state=OutcomeState.APPLIED if fits else OutcomeState.REFUSED,
                           code="" if fits else "other-batch-seen", details=details)  # fmt: skip
    return Outcome(state=OutcomeState.REFUSED, code="batch-not-seen")
