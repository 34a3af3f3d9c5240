"""Copies of pinned batches to the device that do not wait for it."""

from __future__ import annotations

from typing import Any

from _flatout_agent.apply.model import EXACT, Knob, Outcome, Scene, applied, refused


class NonBlocking(Knob):
    name = "non_blocking"

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._before = 0

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        if not scene.has_cuda():
            return refused("no-cuda-device")
        if not scene.loaders:
            return refused("no-loader-found")
        self._scene, self._before = scene, scene.mover.made_non_blocking
        scene.mover.join(self.name)
        scene.handover.hand_batches_to(scene.mover.arrived)
        return applied()

    def take_off(self) -> None:
        if self._scene is not None:
            self._scene.mover.leave(self.name)
            if not self._scene.mover.users:
                self._scene.handover.hand_batches_to(None)

    def proof(self) -> Outcome:
        seen = self._scene.mover.made_non_blocking - self._before if self._scene is not None else 0
        return applied(copies=seen) if seen else refused("no-pinned-batch-was-moved")

    def numerics(self, scene: Scene) -> str:
        return EXACT
