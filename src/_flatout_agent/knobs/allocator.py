"""Settings of the CUDA caching allocator: only before anything was allocated.

Through torch's own call, not through the environment: a variable of ours would be seen by the script and inherited by
its children. A variable that is set already, or that the script's source speaks of, is the script's own choice.
"""

from __future__ import annotations

import os
from typing import Any

from _flatout_agent.knobs.knob import EXACT, UNKNOWN, Knob, Outcome, Scene, already, applied, refused
from _flatout_agent.knobs.script_source import says_allocator

VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")

# value -> the setting, what takes it back, and what the allocator then says of itself
SETTINGS: dict[str, tuple[str, str, str]] = {
    "expandable": ("expandable_segments:True", "expandable_segments:False", "expandable_segments"),
    "roundup": ("roundup_power2_divisions:8", "roundup_power2_divisions:0", "roundup_power2_divisions"),
}


class Allocator(Knob):
    """Memory in segments that grow, or in sizes that fit again: for batches whose shapes change."""

    name = "allocator"
    hot = False

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._setting = ("", "", "")
        self._on = False

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        if not scene.may_have_cuda():
            return refused("no-cuda-device")
        if value not in SETTINGS:
            return refused("unknown-value", value=str(value))
        self._scene, self._setting = scene, SETTINGS[value]
        outcome = self._chosen()
        if outcome is not None:
            return outcome
        if scene.device_type != UNKNOWN or scene.torch.cuda.is_initialized():
            return refused("memory-allocated-already")
        change = setter(scene.torch)
        if change is None:
            return refused("no-allocator-settings")
        change(self._setting[0])
        self._on = True
        return applied(setting=self._setting[0])

    def _chosen(self) -> Outcome | None:
        """By the environment, or by the script."""
        for variable in VARIABLES:
            found = os.environ.get(variable, "")
            if self._setting[0].lower() in found.lower().replace(" ", ""):
                return already("environment-set-it", variable=variable)
            if found:
                return refused("environment-chose", variable=variable, found=found)
        where = says_allocator()
        return refused("script-sets-allocator", where=where) if where else None

    def take_off(self) -> None:
        if self._on and self._scene is not None:
            self._on = False
            change = setter(self._scene.torch)
            if change is not None:
                change(self._setting[1])

    def proof(self) -> Outcome:
        if self._scene is None or not self._scene.has_cuda():
            return refused("no-cuda-device")
        found = allocator_says(self._scene.torch)
        if found is None:
            return refused("allocator-is-silent")
        said = found.get(self._setting[2])
        taken = any(said.values()) if isinstance(said, dict) else bool(said)
        return applied(setting=self._setting[0]) if taken else refused("allocator-did-not-take-it", setting=self._setting[0])

    def numerics(self, scene: Scene) -> str:
        return EXACT


def setter(torch: Any) -> Any:
    """torch's own way of changing them, by whichever name this version has for it."""
    for name in ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings"):
        found = getattr(torch._C, name, None)
        if found is not None:
            return found
    return None


def allocator_says(torch: Any) -> dict[str, Any] | None:
    """What the allocator says of its settings; nothing before torch 2.1."""
    told = torch.cuda.memory._snapshot().get("allocator_settings")
    return dict(told) if isinstance(told, dict) else None
