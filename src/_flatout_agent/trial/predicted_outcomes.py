"""What will come of knobs where the script's parts say so already: a trial costs seconds, a compiler, a child or epochs."""

from __future__ import annotations

from typing import Any

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.knobs.knob import Scene
from _flatout_agent.knobs.registry import KNOBS

ASKED = {
    "compile": ("default", "reduce-overhead", "graphs"),
    "persistent_workers": ("on",),
    "cudnn_benchmark": ("on",),
    "precision": ("bf16",),
    "channels_last": ("on",),
    "fused_optimizer": ("on",),
    "pin_memory": ("on",),
}


def foretold(scene: Scene) -> dict[str, dict[str, Any]]:
    """By knob and value; what only a trial can tell is not in it."""
    found: dict[str, dict[str, Any]] = {}
    for name, values in ASKED.items():
        for value in values:
            try:
                outcome = KNOBS[name].foretold(scene, value)
            except Exception as error:
                fault("foretelling", error)
                continue
            if outcome is not None:
                found.setdefault(name, {})[value] = outcome.told()
    return found
