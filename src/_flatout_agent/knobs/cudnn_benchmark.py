"""cuDNN's search for the fastest plan of each convolution."""

from __future__ import annotations

import gc
from typing import Any

from _flatout_agent.knobs.knob import Knob, Outcome, Scene, already, applied, refused


class CudnnBenchmark(Knob):
    """Only before the first step: a plan that was chosen once is kept, whatever the flag says later."""

    name = "cudnn_benchmark"
    hot = False

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._flags: Any = None
        self._before: bool | None = None
        self._seen: bool | None = None

    @classmethod
    def foretold(cls, scene: Scene, value: Any) -> Outcome | None:
        why = _obstacle(scene)
        return refused("no-convolutions") if why is None and not _convolves(scene) else why

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        flags = scene.torch.backends.cudnn
        why = _obstacle(scene)
        if why is not None:
            return why
        if scene.steps_done:
            return refused("plans-chosen-already", steps=scene.steps_done)
        self._scene, self._flags, self._before = scene, flags, flags.benchmark
        flags.benchmark = True
        return applied()

    def take_off(self) -> None:
        if self._before is not None:
            self._flags.benchmark, self._before = self._before, None

    def proof(self) -> Outcome:
        if self._scene is None or not self._scene.has_cuda():
            return refused("no-cuda-device")
        if self._seen is None and self._scene.roots:
            self._seen = _convolves(self._scene)  # once
        if self._seen is False:
            return refused("no-convolutions")
        return applied(before_first_step=True) if self._flags.benchmark else refused("flag-lost")


def _obstacle(scene: Scene) -> Outcome | None:
    flags = scene.torch.backends.cudnn
    if not scene.may_have_cuda():
        return refused("no-cuda-device")
    if not flags.is_available():
        return refused("no-cudnn")
    if flags.benchmark:
        return already("script-set-it")
    if flags.deterministic or scene.torch.are_deterministic_algorithms_enabled():
        return refused("script-wants-determinism")
    return None


def _convolves(scene: Scene) -> bool:
    """Whether there is anything to search plans for, in all that lives: a loss may have a network too."""
    torch, roots = scene.torch, scene.roots
    if not roots:
        return True  # not known yet
    # A weight of more than two sides may be one of a convolution that is called as a function.
    if any(parameter.dim() > 2 for root in roots for parameter in root.parameters()):
        return True
    kind = torch.nn.modules.conv._ConvNd
    # By type: `isinstance` would wake lazy proxies.
    return any(issubclass(type(thing), kind) for thing in gc.get_objects())
