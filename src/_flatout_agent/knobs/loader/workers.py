"""The number of processes that fetch."""

from __future__ import annotations

from typing import Any

from _flatout_agent.knobs.knob import APPLIED, Outcome, Scene, already, applied, refused
from _flatout_agent.knobs.loader.loader_control import Control
from _flatout_agent.knobs.loader.loader_knob import LoaderKnob
from _flatout_agent.knobs.loader.worker_limits import most_workers, worker_obstacle


class Workers(LoaderKnob):
    name = "workers"
    field = "workers"

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        outcome = super().put_on(scene, value)
        if outcome.status == APPLIED and outcome.details.get("workers"):

            def trained_from(loader: Any) -> bool:
                return any(known.dataset is loader.dataset for known in scene.loaders)

            scene.handover.evaluations.begin(outcome.details["workers"], lambda: scene.steps_done, trained_from)
        return outcome

    def take_off(self) -> None:
        if self._handover is not None:
            self._handover.end_evaluations()
        super().take_off()

    def _setting(self, scene: Scene, loader: Any, current: Any, value: Any) -> tuple[Outcome, Any]:
        count = int(value)
        if count == loader.num_workers:
            return already("script-has-as-many", workers=count), None
        if count == 0:
            return applied(workers=0), 0
        why = worker_obstacle(scene.torch, loader)
        if why is not None:
            return refused(why[0], **why[1]), None
        fetching = scene.handover.fetching(loader.dataset)
        size = (fetching.batch_bytes, fetching.batch_tensors) if fetching else (0, 1)
        most, limit = most_workers(loader, current.prefetch or 2, *size)
        if not most:
            return refused("no-room-for-workers", limit=limit), None
        if count > most:
            return applied("capped", workers=most, wanted=count, limit=limit), most
        return applied(workers=count), count

    def _seen(self, control: Control, iterator: Any) -> Outcome:
        found = self._workers_seen(control, iterator)
        if found.status == APPLIED and self._handover is not None:
            found.details.update({**control.turns.told(), **self._handover.evaluations.told()})
        return found

    def _workers_seen(self, control: Control, iterator: Any) -> Outcome:
        wanted = control.settings().workers
        if iterator is None or getattr(iterator, "_shutdown", False):
            if control.last.workers == wanted:
                return applied(workers_seen=wanted, batches=control.delivered)
            return refused("no-batch-yet")
        alive = sum(worker.is_alive() for worker in getattr(iterator, "_workers", ()))
        if alive == wanted:
            return applied(workers_alive=alive, batches=control.delivered)
        return refused("other-number-of-workers", workers_alive=alive, wanted=wanted)
