"""A batch copied to the device on a stream of its own as soon as it arrives, while earlier work still runs there."""

from __future__ import annotations

from typing import Any

from _flatout_agent.apply.model import EXACT, Knob, Outcome, Scene, applied, refused


class DevicePrefetch(Knob):
    name = "device_prefetch"

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._before = 0

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        if not scene.has_cuda():
            return refused("no-cuda-device")
        if not scene.loaders:
            return refused("no-loader-found")
        self._scene, self._before = scene, scene.mover.used_ahead
        scene.mover.join(self.name)
        scene.handover.hand_batches_to(scene.mover.arrived)
        return applied()

    def take_off(self) -> None:
        if self._scene is not None:
            self._scene.mover.leave(self.name)
            if not self._scene.mover.users:
                self._scene.handover.hand_batches_to(None)

    def proof(self) -> Outcome:
        if self._scene is None:
            return refused("not-put-on")
        mover = self._scene.mover
        used = mover.used_ahead - self._before
        if used:
            return applied(copies_used=used, copies_made=mover.copied_ahead)
        return refused("copies-never-used" if mover.copied_ahead else "no-pinned-batch-was-moved")

    def numerics(self, scene: Scene) -> str:
        return EXACT
