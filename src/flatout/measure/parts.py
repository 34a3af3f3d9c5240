"""The parts of a whole run: from the phases of the clock to seconds that add up to the wall time.

A run of E epochs of n steps costs start + building + E * (n * step + turn + validation + checkpoint) + script + exit: so each
part is what repeats alike, or comes once.
"""

from __future__ import annotations

from collections.abc import Mapping

from _flatout_agent.wire import TRAINING_PHASES

# In the order in which people read them.
PARTS = ("start", "building", "steps", "turns", "validation", "checkpoint", "script", "exit", "unexplained")

_PART_OF = {
    "startup": "start",
    "settings": "building",
    "compile": "building",
    "turn": "turns",
    "validation": "validation",
    "checkpoint": "checkpoint",
    "shutdown": "exit",
    "unexplained": "unexplained",
    **dict.fromkeys(TRAINING_PHASES, "steps"),
}


def parts_of(phases: Mapping[str, float], script_outside_s: float = 0.0) -> dict[str, float]:
    """Seconds of each part, by its name in PARTS. `script_outside_s`: of the script's own code, what does not come with every
    step; the rest of it belongs to the steps."""
    parts = dict.fromkeys(PARTS, 0.0)
    for name, spent in phases.items():
        parts[_PART_OF.get(name, "unexplained")] += spent
    outside = min(script_outside_s, phases.get("script", 0.0))
    parts["steps"] -= outside
    parts["script"] += outside
    return parts
