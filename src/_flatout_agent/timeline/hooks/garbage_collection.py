"""Python's garbage collector: how long it held the training up. Called twice for each collection, and never in between."""

from __future__ import annotations

import gc
from time import perf_counter_ns
from typing import Any

from _flatout_agent.core.patches import Patches
from _flatout_agent.timeline.event_buffer import Tape


def watch(tape: Tape, patches: Patches) -> None:
    clock = tape.clock
    began = 0

    def collected(phase: str, info: Any, now: Any = perf_counter_ns) -> None:
        """Of any thread: whoever collects holds all others up.

        What raised here would be printed: so it calls no name that is gone when Python ends.
        """
        nonlocal began
        if phase == "start":
            began = now()
        elif began:
            clock.collected += now() - began
            began = 0

    def take_off() -> None:
        if collected in gc.callbacks:  # a script may have emptied the list
            gc.callbacks.remove(collected)

    gc.callbacks.append(collected)
    patches.on_take_off(take_off)
