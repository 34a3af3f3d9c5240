"""Batches in page-locked memory, from which a copy to the device need not wait."""

from __future__ import annotations

from typing import Any

from _flatout_agent.knobs.knob import EXACT, Outcome, Scene, already, applied, refused
from _flatout_agent.knobs.loader.loader_control import Control
from _flatout_agent.knobs.loader.loader_knob import LoaderKnob


class PinMemory(LoaderKnob):
    name = "pin_memory"
    field = "pin"

    @classmethod
    def foretold(cls, scene: Scene, value: Any) -> Outcome | None:
        loaders = scene.loaders
        return already("script-set-it") if loaders and all(loader.pin_memory for loader in loaders) else None

    def _setting(self, scene: Scene, loader: Any, current: Any, value: Any) -> tuple[Outcome, Any]:
        if not scene.has_cuda():
            return refused("no-cuda-device"), None
        if loader.pin_memory:
            return already("script-set-it"), None
        return applied(), True

    def _seen(self, control: Control, iterator: Any) -> Outcome:
        if control.pinned:
            return applied(batches=control.delivered)
        return refused("not-pinned")

    def numerics(self, scene: Scene) -> str:
        return EXACT
