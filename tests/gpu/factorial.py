"""What a search found against everything: factorial.py OUT.json SCRIPT [ARGUMENTS] after `flatout tune`.

1. Every combination of the compute knobs (compile off, or as the profile has it; FLATOUT_COMPILE for another), on kept batches.
2. The best of them with every number of workers of a sweep, in the real loop, with the profile's other settings of the input.
3. The profile and the best that this found, in turn in the real loop: at least 0.95 is what a search should reach.

FLATOUT_PAIRS, FLATOUT_TIMED: of the last comparison, and seconds of a segment. What has no effect is left out of the factorial.
"""

from __future__ import annotations

import itertools
import os
import sys
import time

from asking import SETTLING, Asking, of_a_profile

from flatout.base.records import Missing, dump
from flatout.tune.search.questions_and_answers import Mode, OutcomeState, Values

PAIRS = int(os.environ.get("FLATOUT_PAIRS", "12"))
TIMED_S = float(os.environ.get("FLATOUT_TIMED", "0.7"))
COMPUTE = {"precision": "bf16", "tf32": "on", "channels_last": "on", "fused_optimizer": "on"}
INPUT = ("pin_memory", "non_blocking", "device_prefetch", "prefetch_factor", "persistent_workers")
WORKERS = (0, 1, 2, 3, 4, 6, 8, 10, 11, 12, 14, 16)
MOST_POINTS = 64


def measure(asked: Asking, profile: Values) -> dict[str, object]:
    began = time.perf_counter()
    wanted = dict(COMPUTE)
    if compiled := os.environ.get("FLATOUT_COMPILE") or profile.get("compile"):
        wanted["compile"] = compiled
    effective = {knob: value for knob, value in wanted.items() if has_effect(asked, knob, value)}
    points = all_points(asked, effective)
    best_compute = max(points, key=lambda point: point[1])[0]
    others = {knob: profile[knob] for knob in INPUT if knob in profile}
    sweep = over_workers(asked, {**best_compute, **others})
    best_workers = max(sweep, key=lambda each: each[1])[0]
    best = {**best_compute, **others, "workers": str(best_workers)}
    asked.rate(best, Mode.REAL, 3 * SETTLING)
    asked.rate(profile, Mode.REAL, 3 * SETTLING)
    compared, pairs = asked.compare((best, Mode.REAL), (profile, Mode.REAL), PAIRS)
    return {
        "points": points,
        "sweep": sweep,
        "best_compute": best_compute,
        "best_workers": best_workers,
        "best": best,
        "tuned_to_best": dump(compared),
        "rates": [[pair.a, pair.b] for pair in pairs],
        "seconds": round(time.perf_counter() - began, 1),
    }


def has_effect(asked: Asking, knob: str, value: str) -> bool:
    outcome = asked.result({knob: value}, Mode.REPLAY_HOST).outcomes.get(knob)
    applied = outcome is not None and outcome.state is OutcomeState.APPLIED
    if not applied:
        print(f"{knob}={value}: {outcome.code if outcome else 'no outcome'}", file=sys.stderr)
    return applied


def all_points(asked: Asking, effective: Values) -> list[tuple[Values, float]]:
    """In an order that changes what must be compiled anew as seldom as possible."""
    outside = sorted(effective, key=lambda knob: knob == "fused_optimizer")
    found = []
    for chosen in itertools.islice(itertools.product((False, True), repeat=len(outside)), MOST_POINTS):
        knobs = {knob: effective[knob] for knob, on in zip(outside, chosen, strict=True) if on}
        rate = asked.rate(knobs, Mode.REPLAY_HOST)
        if not isinstance(rate, Missing):
            found.append((knobs, rate))
            print(f"{rate:10.1f} {knobs}", file=sys.stderr, flush=True)
    return found


def over_workers(asked: Asking, knobs: Values) -> list[tuple[int, float]]:
    found = []
    for workers in [number for number in WORKERS if number <= (os.cpu_count() or 1)]:
        rate = asked.rate({**knobs, "workers": str(workers)}, Mode.REAL, 2 * SETTLING)
        if not isinstance(rate, Missing):
            found.append((workers, rate))
            print(f"{rate:10.1f} {workers} workers", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    of_a_profile(measure, TIMED_S, hidden=("points", "sweep", "rates"))
