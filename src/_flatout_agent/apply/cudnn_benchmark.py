"""cuDNN's search for the fastest plan of each convolution."""

from __future__ import annotations

from typing import Any

from _flatout_agent.apply.model import Knob, Outcome, Scene, already, applied, refused


class CudnnBenchmark(Knob):
    """Only before the first step: a plan that was chosen once is kept, whatever the flag says later."""

    name = "cudnn_benchmark"
    hot = False

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._flags: Any = None
        self._before: bool | None = None

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        flags = scene.torch.backends.cudnn
        if not scene.may_have_cuda():
            return refused("no-cuda-device")
        if not flags.is_available():
            return refused("no-cudnn")
        if flags.benchmark:
            return already("script-set-it")
        if flags.deterministic or scene.torch.are_deterministic_algorithms_enabled():
            return refused("script-wants-determinism")
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
        return applied(before_first_step=True) if self._flags.benchmark else refused("flag-lost")
