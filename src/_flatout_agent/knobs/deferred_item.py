"""`.item()` of a logged loss: the value is copied in the order of the device's work, and waited for when it is shown.

Only at lines where the source proves that nothing else is done with it (see `shown_only`), and only for a value on the
device. The value is the one at that moment: a copy of it is made on the device, whatever becomes of the tensor.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from _flatout_agent.core.patches import Patches, dress
from _flatout_agent.knobs.deferrable_items import lines_that_may_wait
from _flatout_agent.knobs.deferred_number import Later
from _flatout_agent.knobs.knob import EXACT, Knob, Outcome, Scene, applied, refused
from _flatout_agent.knobs.script_source import own_sources

MOST_TOLD = 4


class DeferredItem(Knob):
    name = "deferred_item"

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._patches = Patches()
        self._lines: dict[str, set[int]] = {}  # path -> the lines whose items may wait
        self._of_code: dict[Any, set[int]] = {}  # the same by code object: found without touching the path
        self.deferred = 0
        self.waits = 0

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        if not scene.has_cuda():
            return refused("no-cuda-device")
        return self.begin(scene)

    def begin(self, scene: Scene) -> Outcome:
        others = []
        for path, text in own_sources():
            waiting, busy = lines_that_may_wait(text)
            if waiting:
                self._lines[path] = waiting
            others += [f"{os.path.basename(path)}:{line}" for line in sorted(busy)]
        if not self._lines:
            return refused("items-are-used", where=others[:MOST_TOLD]) if others else refused("no-item-in-the-script")
        self._scene = scene
        original = scene.torch.Tensor.item
        self._patches.put(scene.torch.Tensor, "item", dress(self._item(original), original))
        scene.on_tensors.append(self._patches)
        where = [f"{os.path.basename(path)}:{line}" for path, lines in self._lines.items() for line in sorted(lines)]
        return applied(where=where[:MOST_TOLD])

    def _item(self, original: Any) -> Any:
        of_code, get_frame = self._of_code, sys._getframe

        def item(tensor: Any) -> Any:
            if tensor.is_cpu:
                return original(tensor)
            frame = get_frame(1)
            lines = of_code.get(frame.f_code)
            if lines is None:
                lines = of_code[frame.f_code] = self._lines.get(os.path.abspath(frame.f_code.co_filename), set())
            if frame.f_lineno not in lines or not tensor.is_floating_point() or tensor.numel() != 1:
                return original(tensor)
            self.deferred += 1
            return Later(tensor.detach().reshape(()).clone(), self._waited)

        return item

    def _waited(self) -> None:
        self.waits += 1

    def take_off(self) -> None:
        if self._scene is not None:
            self._scene.on_tensors.remove(self._patches)
            self._scene = None
        self._patches.take_off()

    def proof(self) -> Outcome:
        if not self.deferred:
            return refused("no-item-was-deferred")
        return applied(items=self.deferred, waits=self.waits)

    def numerics(self, scene: Scene) -> str:
        return EXACT
