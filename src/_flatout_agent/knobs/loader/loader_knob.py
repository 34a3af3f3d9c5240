"""What the loader's knobs share: each sets one field, and one handover serves them all."""

from __future__ import annotations

from typing import Any
from weakref import ref

from _flatout_agent.knobs.knob import EXACT, RESAMPLED, Knob, Outcome, Scene, refused
from _flatout_agent.knobs.loader.iterator_handover import Handover
from _flatout_agent.knobs.loader.loader_control import Control
from _flatout_agent.knobs.loader.replacement_iterators import settings_of
from _flatout_agent.knobs.loader.worker_limits import obstacle


class LoaderKnob(Knob):
    """One setting of each training loader, through the scene's handover."""

    field = ""  # of Settings

    def __init__(self) -> None:
        self._handover: Handover | None = None
        self._held: list[tuple[ref[Any], Control]] = []

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        if not scene.loaders:
            return refused("no-loader-found")
        self._handover = scene.handover
        outcomes = [self._put_on_loader(scene, loader, value) for loader in scene.loaders]
        return next((outcome for outcome in outcomes if outcome.status == "applied"), outcomes[0])

    def _put_on_loader(self, scene: Scene, loader: Any, value: Any) -> Outcome:
        why = obstacle(scene.torch, loader)
        if why is not None:
            return refused(why[0], **why[1])
        control = scene.handover.known(loader)
        outcome, setting = self._setting(scene, loader, control.settings() if control else settings_of(loader), value)
        if outcome.status == "applied":
            control = scene.handover.control(loader)
            control.wanted[self.field] = setting
            self._held.append((ref(loader), control))
        elif control is None:
            scene.handover.release(loader)
        return outcome

    def _setting(self, scene: Scene, loader: Any, current: Any, value: Any) -> tuple[Outcome, Any]:
        raise NotImplementedError

    def take_off(self) -> None:
        while self._held:
            reference, control = self._held.pop()
            control.wanted.pop(self.field, None)
            loader = reference()
            if loader is not None and self._handover is not None:
                self._handover.release(loader)

    def proof(self) -> Outcome:
        controls = [control for _, control in self._held]
        faults = [control.fault for control in controls if control.fault]
        if faults:
            return refused("fetching-failed", error=faults[0])
        if not any(control.delivered for control in controls):
            return refused("no-batch-yet")
        served = next(control for control in controls if control.delivered)
        return self._seen(served, served.serving())

    def _seen(self, control: Control, iterator: Any) -> Outcome:
        """`iterator` is None between epochs; `control.last` says how it was."""
        raise NotImplementedError

    def numerics(self, scene: Scene) -> str:
        """Same bits only where fetching was seen to draw nothing and to change nothing."""
        for loader in scene.loaders:
            fetching = scene.handover.fetching(loader.dataset)
            if loader.num_workers or fetching is None or not fetching.is_pure():
                return RESAMPLED
        return EXACT
