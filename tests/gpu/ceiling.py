"""How near a tuned script comes to the lower of its two ceilings: ceiling.py OUT.json SCRIPT [ARGUMENTS] after `flatout tune`.

The profile beside the script is put on, and the real loop, the loop on kept batches and the loader by itself follow one another
in one child, in turn, for more pairs than the search has time for. FLATOUT_PAIRS and FLATOUT_TIMED say how many, and how long.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from flatout.base.clock import SystemClock
from flatout.base.records import Missing, dump
from flatout.knobs import profile_file
from flatout.launch.sandbox import Sandbox
from flatout.measure.statistics import Pair, compare, spread_of_pairs
from flatout.tune.model import Mode, Segment
from flatout.tune.schedule import a_first
from flatout.tune.trials import Trials

PAIRS = int(os.environ.get("FLATOUT_PAIRS", "16"))
TIMED_S = float(os.environ.get("FLATOUT_TIMED", "1.0"))
LOOKS = 2  # at either ceiling, to see which is the lower one
SETTLING = 24  # steps


def main() -> None:
    out, script = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    knobs = profile_file.read(script.parent / profile_file.NAME).knobs
    os.chdir(script.parent)
    with tempfile.TemporaryDirectory() as folder, Sandbox([]) as sandbox:
        command = [sys.executable, str(script), *sys.argv[3:]]
        with Trials(command, os.environ, sandbox, SystemClock(), Path(folder) / "log") as trials:
            found = measure(trials, knobs)
    out.write_text(json.dumps({"script": script.name, "knobs": knobs, **found}, indent=1))
    print(json.dumps({key: value for key, value in found.items() if key != "rates"}))


def measure(trials: Trials, knobs: dict[str, str]) -> dict[str, object]:
    count = 0

    def rate(mode: Mode, warm: int = SETTLING) -> float:
        nonlocal count
        count += 1
        segment = Segment(
            id=count,
            knobs=knobs,
            warm_steps=warm,
            timed_s=TIMED_S,
            timed_steps=4,
            mode=mode,
            restart=False,
            stage="gains",
            trying=[],
        )
        result = trials.carry_out(segment)
        if isinstance(result.rate, Missing):
            print(f"{mode.value}: {result.status.value} {result.code}", file=sys.stderr)
            return float("inf")
        return result.rate

    rate(Mode.REAL, 3 * SETTLING)  # builds what must be built
    seen = {mode: sum(rate(mode) for _ in range(LOOKS)) / LOOKS for mode in (Mode.REPLAY_HOST, Mode.SUPPLY)}
    lower = min(seen, key=lambda mode: seen[mode])
    pairs = []
    for number in range(PAIRS):
        first = a_first(number, restarting=False)
        rates = {mode: rate(mode) for mode in ((lower, Mode.REAL) if first else (Mode.REAL, lower))}
        pairs.append(Pair(rates[lower], rates[Mode.REAL], first))
    found = compare(pairs, spread_of_pairs([pair.a for pair in pairs]), looks=(PAIRS,))
    real = sum(pair.b for pair in pairs) / PAIRS
    return {"seen": seen, "lower_ceiling": lower, "real": real, **dump(found), "rates": [[pair.a, pair.b] for pair in pairs]}


if __name__ == "__main__":
    main()
