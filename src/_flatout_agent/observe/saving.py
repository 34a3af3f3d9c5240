"""Checkpoints: time inside `torch.save`."""

from __future__ import annotations

from threading import get_ident
from time import perf_counter_ns
from typing import Any

from _flatout_agent.guard import fault
from _flatout_agent.patch import Patches, dress
from _flatout_agent.tape import Tape


def watch(torch: Any, tape: Tape, patches: Patches) -> None:
    original = torch.save

    def save(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != tape.owner:
            return original(*args, **kwargs)
        began = perf_counter_ns()
        try:
            tape.something_new(began)
        except Exception as error:
            fault("saving.began", error)
        try:
            return original(*args, **kwargs)
        finally:
            try:
                tape.note((tape.clock.saved, began, perf_counter_ns()))
            except Exception as error:
                fault("saving", error)

    dress(save, original)
    patches.put(torch, "save", save)
    # Both names, or pickling a reference to the function would find another object under its own name.
    patches.put(torch.serialization, "save", save)
