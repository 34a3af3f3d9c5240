"""How near a tuned script comes to the lower of its two ceilings: ceiling.py OUT.json SCRIPT [ARGUMENTS] after `flatout tune`.

The profile beside the script is put on, and the real loop and its lower ceiling (the loop on kept batches, or the loader by
itself) follow one another in one child, for more pairs than the search has time for. FLATOUT_PAIRS and FLATOUT_TIMED say how
many, and how long.
"""

from __future__ import annotations

import os

from asking import SETTLING, Asking, of_a_profile

from flatout.base.records import Missing, dump
from flatout.tune.search.questions_and_answers import Mode, Values

PAIRS = int(os.environ.get("FLATOUT_PAIRS", "16"))
TIMED_S = float(os.environ.get("FLATOUT_TIMED", "1.0"))
LOOKS = 2  # at either ceiling, to see which is the lower one


def measure(asked: Asking, knobs: Values) -> dict[str, object]:
    asked.rate(knobs, Mode.REAL, 3 * SETTLING)  # builds what must be built
    seen = {}
    for mode in (Mode.REPLAY_HOST, Mode.SUPPLY):
        rates = [rate for _ in range(LOOKS) if not isinstance(rate := asked.rate(knobs, mode), Missing)]
        if rates:
            seen[mode] = sum(rates) / len(rates)
    lower = min(seen, key=lambda mode: seen[mode])
    found, pairs = asked.compare((knobs, lower), (knobs, Mode.REAL), PAIRS)
    real = sum(pair.b for pair in pairs) / len(pairs)
    return {"seen": seen, "lower_ceiling": lower, "real": real, **dump(found), "rates": [[pair.a, pair.b] for pair in pairs]}


if __name__ == "__main__":
    of_a_profile(measure, TIMED_S, hidden=("rates",))
