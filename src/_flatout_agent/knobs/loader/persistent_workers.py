"""Workers that stay alive from one epoch to the next."""

from __future__ import annotations

from typing import Any

from _flatout_agent.knobs.knob import Outcome, Scene, already, applied, refused
from _flatout_agent.knobs.loader.loader_control import Control
from _flatout_agent.knobs.loader.loader_knob import LoaderKnob


class PersistentWorkers(LoaderKnob):
    name = "persistent_workers"
    field = "persistent"

    @classmethod
    def foretold(cls, scene: Scene, value: Any) -> Outcome | None:
        loaders = scene.loaders
        own = bool(loaders) and all(loader.persistent_workers for loader in loaders)
        return already("script-set-it") if own else None

    def _setting(self, scene: Scene, loader: Any, current: Any, value: Any) -> tuple[Outcome, Any]:
        if not current.workers:
            return refused("needs-workers"), None
        if loader.persistent_workers:
            return already("script-set-it"), None
        return applied(), True

    def _seen(self, control: Control, iterator: Any) -> Outcome:
        epochs = [pids for pids in control.worker_pids if pids]
        if len(epochs) < 2:
            return refused("no-second-epoch-yet")
        if epochs[-1] == epochs[-2]:
            return applied(same_workers=len(epochs[-1]))
        return refused("workers-restarted", epochs=len(epochs))
