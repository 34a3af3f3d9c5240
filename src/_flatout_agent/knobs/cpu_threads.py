"""Threads of torch's own operations on the processor."""

from __future__ import annotations

from typing import Any

from _flatout_agent.knobs.knob import Knob, Outcome, Scene, already, applied, refused


class CpuThreads(Knob):
    name = "cpu_threads"

    def __init__(self) -> None:
        self._torch: Any = None
        self._before: int | None = None
        self._wanted = 0

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        self._torch, self._wanted = scene.torch, int(value)
        if self._wanted < 1:
            return refused("unknown-value", value=str(value))
        before = self._torch.get_num_threads()
        if before == self._wanted:
            return already("script-has-as-many", threads=before)
        self._before = before
        self._torch.set_num_threads(self._wanted)
        return applied(threads=self._wanted, before=before)

    def take_off(self) -> None:
        if self._before is not None:
            self._torch.set_num_threads(self._before)
            self._before = None

    def proof(self) -> Outcome:
        threads = self._torch.get_num_threads()
        return applied(threads=threads) if threads == self._wanted else refused("flag-lost", threads=threads)
