"""What the two knobs for a batch's copy to the device share: they see each batch of the loaders, and the calls that move it."""

from __future__ import annotations

from typing import Any

from _flatout_agent.knobs.knob import EXACT, Knob, Outcome, Scene, applied, refused
from _flatout_agent.knobs.loader.batch_copies import Mover


class CopyKnob(Knob):
    """Joins the scene's mover, and lets the handover show it every batch."""

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._before = 0

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        if not scene.has_cuda():
            return refused("no-cuda-device")
        if not scene.loaders:
            return refused("no-loader-found")
        self._scene, self._before = scene, self._count(scene.mover)
        scene.mover.join(self.name)
        scene.handover.hand_batches_to(scene.mover)
        return applied()

    def take_off(self) -> None:
        if self._scene is not None:
            self._scene.mover.leave(self.name)
            if not self._scene.mover.users:
                self._scene.handover.hand_batches_to(None)

    def stays_on(self) -> None:
        if self._scene is not None:
            self._before = self._count(self._scene.mover)

    def proof(self) -> Outcome:
        if self._scene is None:
            return refused("not-put-on")
        mover = self._scene.mover
        return self._seen(mover, self._count(mover) - self._before)

    def _count(self, mover: Mover) -> int:
        """What this knob adds to."""
        raise NotImplementedError

    def _seen(self, mover: Mover, count: int) -> Outcome:
        raise NotImplementedError

    def numerics(self, scene: Scene) -> str:
        return EXACT
