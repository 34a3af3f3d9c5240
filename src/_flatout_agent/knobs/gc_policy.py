"""Garbage collection between steps."""

from __future__ import annotations

import gc
from typing import Any

from _flatout_agent.knobs.knob import EXACT, Knob, Outcome, Scene, already, applied, refused

COLLECT_EVERY = 500  # steps between two collections of our own
FROZEN_BY_PYTHON = 2000  # 3.12 begins with 375; a script that freezes has all its modules in it, 4,500 objects at the least


class GcPolicy(Knob):
    """What lives is set aside, and garbage is collected between steps instead of in the middle of one."""

    name = "gc_policy"

    def __init__(self) -> None:
        self._on = False
        self._steps = 0
        self._collections = 0
        self._automatic = [0]
        self._handles: list[Any] = []

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        if not gc.isenabled():
            return already("script-disabled-it")
        if gc.get_freeze_count() > FROZEN_BY_PYTHON:
            return already("script-froze-it", objects=gc.get_freeze_count())
        if not scene.optimizers:
            return refused("no-optimizer-found")
        gc.collect()
        gc.freeze()
        gc.disable()
        self._on = True
        self._automatic = [generation["collections"] for generation in gc.get_stats()]
        self._handles = [scene.optimizers[0].register_step_post_hook(self._stepped)]
        return applied(every=COLLECT_EVERY)

    def _stepped(self, *_: Any) -> None:
        self._steps += 1
        if not self._steps % COLLECT_EVERY:
            gc.collect()
            self._collections += 1

    def take_off(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        if self._on:
            self._on = False
            gc.unfreeze()
            gc.enable()

    def proof(self) -> Outcome:
        if gc.isenabled():
            return refused("flag-lost")
        if not self._steps:
            return refused("no-step-yet")
        young = gc.get_stats()[0]["collections"] - self._automatic[0]
        return applied(steps=self._steps, own_collections=self._collections, automatic_collections=young)

    def numerics(self, scene: Scene) -> str:
        return EXACT
