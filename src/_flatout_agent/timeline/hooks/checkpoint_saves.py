"""Checkpoints: time inside `torch.save`."""

from __future__ import annotations

import os
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import Patches, dress, leave_us_out
from _flatout_agent.timeline.event_buffer import Tape


def watch(torch: Any, tape: Tape, patches: Patches) -> None:
    original = torch.save

    def save(*args: Any, **kwargs: Any) -> Any:
        began = perf_counter_ns() if get_ident() == tape.owner else 0
        try:
            if began:
                tape.something_new(began)
        except Exception as error:
            fault("saving.began", error)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            leave_us_out(error)
            raise
        finally:
            try:
                if began:
                    tape.note((tape.clock.saved, began, perf_counter_ns()))
                    note_file(tape, args[1] if len(args) > 1 else kwargs.get("f"))
            except Exception as error:
                fault("saving", error)

    dress(save, original)
    patches.put(torch, "save", save)
    # Both names, or pickling a reference to the function would find another object under its own name.
    patches.put(torch.serialization, "save", save)


def note_file(tape: Tape, file: Any) -> None:
    """How large it became, where it has a name; what raised may have left none."""
    path = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)
    if isinstance(path, (str, os.PathLike)) and os.path.isfile(path):
        tape.clock.saves.met(os.path.abspath(os.fspath(path)), os.path.getsize(path))
