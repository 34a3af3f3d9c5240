"""When the script is looked at deeply: after a warm-up, at the boundaries of its steps, one look after the other.

While looks are due every reading of the tape comes here, and so every step; afterwards nothing is left behind. A look
during which something else happened (a validation, a checkpoint, a fork) is taken again.
"""

from __future__ import annotations

import os
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Callable
from weakref import ref

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import Patches, dress
from _flatout_agent.modes.deep_look.device_kernels import ProfileLook
from _flatout_agent.modes.deep_look.flops import FlopLook
from _flatout_agent.modes.deep_look.hidden_syncs import SyncLook
from _flatout_agent.modes.deep_look.sample_cost import FetchLook, watch_workers
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.phase_totals import CHECKPOINT

OLDEST_TORCH = (2, 4)
WARM_UP = 20  # steps
BY_HAND = 32  # backward passes without an optimizer's step: the script updates its parameters itself
MOST_TRIES = 3
REMEMBERED = 16  # steps before the first look, whose middle is the usual length of one

Write = Callable[..., None]


class Refusal:
    """In the place of the looks, where this torch is too old for them."""

    def __init__(self, tape: Tape, write: Write) -> None:
        self._tape = tape
        self._write = write

    def after_fork(self) -> None:
        pass

    def finish(self) -> None:
        if trains(self._tape):
            self._write(look="none", reason="torch-too-old")


def trains(tape: Tape) -> bool:
    """Helpers of the script import torch too, and have nothing to tell."""
    clock = tape.clock
    return bool(clock.steps or clock.backwards or clock.batches)


class DeepLook:
    """One process's looks; `write(**fields)` puts one line into its journal."""

    def __init__(self, torch: Any, tape: Tape, patches: Patches, run_dir: str, write: Write, write_in_worker: Write) -> None:
        folder = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
        self._torch = torch
        self._tape = tape
        self._write = write
        self._on_loaders = Patches()
        self._profile = ProfileLook(torch)
        self._looks: list[Any] = [self._profile, SyncLook(torch), FlopLook(torch, tape)]
        self._waiting = list(self._looks)
        self._now: Any = None  # the look under way
        self._fetching = FetchLook(folder, write, worker=False)
        self._epoch: Any = None  # a weak reference to the loader's iterator that was begun last
        self._warm_up = 0
        self._steps = 0
        self._times: list[int] = []
        self._due = 0  # when the tape would be read without us
        self._tries = 0
        self._taken = 0
        watch_workers(folder, run_dir, write_in_worker, patches)
        self._watch_loaders()
        self._fetching.begin()
        vars(tape)["read"] = self._read
        tape.due = 0

    def _watch_loaders(self) -> None:
        """How long an epoch is tells how much warm-up a short script can afford."""
        from torch.utils.data import DataLoader, IterableDataset

        original = DataLoader.__iter__

        def __iter__(loader: Any) -> Any:
            iterator = original(loader)
            try:
                if not isinstance(loader.dataset, IterableDataset):  # asking for its length changes how torch warns
                    self._epoch = ref(iterator)
            except Exception as error:
                fault("deep.loader", error)
            return iterator

        self._on_loaders.put(DataLoader, "__iter__", dress(__iter__, original))

    # -- called by the agent -------------------------------------------------------------------------------------

    def _read(self, now: int) -> None:
        """In the place of the tape's own reading."""
        tape = self._tape
        try:
            tape.tell()
            self._fetching.at_step()
            if (self._waiting or self._now is not None) and not self._captured():
                self._at_boundary()
        except Exception as error:
            fault("deep", error)
            self._give_up()
        if now >= self._due:
            type(tape).read(tape, now)
            self._due = tape.due
        if self._waiting or self._now is not None or self._fetching.sampling:
            tape.due = 0
        else:
            self._fetching.end()
            self._leave()

    def _captured(self) -> bool:
        """Inside the capture of a CUDA graph nothing may wait for the device."""
        cuda = self._torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def before_fork(self) -> None:
        """No look and no thread of ours is carried into a child."""
        try:
            if self._now is not None and get_ident() == self._tape.owner:
                self._set_aside()
            if self._fetching.sampling:
                self._fetching.end()
        except Exception as error:
            fault("deep.fork", error)

    def after_fork(self) -> None:
        due = self._tape.due  # a child that trains is read at its first step
        self._leave()
        self._tape.due = due

    def finish(self) -> None:
        try:
            if self._now is not None:
                self._abandon("cut-short")
            elif not self._taken and self._waiting and trains(self._tape):
                self._write(look="none", reason="too-few-steps")
            self._fetching.end()
            self._leave()
        except Exception as error:
            fault("deep.finish", error)

    def _leave(self) -> None:
        self._on_loaders.take_off()
        self._waiting.clear()
        for look in self._looks:
            look.leave()
        vars(self._tape).pop("read", None)
        self._tape.due = max(self._tape.due, self._due)

    # -- one look after the other --------------------------------------------------------------------------------

    def _at_boundary(self) -> None:
        clock = self._tape.clock
        steps = clock.steps or (clock.backwards if clock.backwards > BY_HAND else 0)
        if steps <= self._steps:
            return  # another optimizer of the same round
        self._steps = steps
        if self._now is not None:
            self._tape.sampling = False  # the light look would be seen by this one
            self._go_on()
        else:
            self._times = [*self._times[-REMEMBERED:], perf_counter_ns()]
            if not self._warm_up:
                self._warm_up = self._affordable_warm_up()
                self._on_loaders.take_off()
        if self._now is None and steps >= self._warm_up:
            self._begin()

    def _affordable_warm_up(self) -> int:
        iterator = self._epoch() if self._epoch is not None else None
        if iterator is None or not self._tape.clock.batches:
            return WARM_UP
        try:
            epoch: int = len(iterator) * self._steps // self._tape.clock.batches
        except Exception:  # it has no length
            return WARM_UP
        wanted: int = sum(look.steps for look in self._waiting if look.refusal() is None)
        return max(1, min(WARM_UP, epoch - wanted))

    def _begin(self) -> None:
        while self._waiting and self._now is None:
            look = self._waiting.pop(0)
            began = perf_counter_ns()
            reason = self._general_refusal() or look.refusal()
            if reason is not None:
                self._write(look=look.name, reason=reason)
                continue
            self._fetching.pause(True)
            self._now, self._first, self._before = look, self._steps, self._elsewhere()
            self._tape.sampling = False
            try:
                look.begin()
            except Exception as error:
                fault(f"deep.{look.name}", error)
                self._abandon("failed")
            self._began, self._set_up = perf_counter_ns(), perf_counter_ns() - began
            self._tape.note((self._tape.clock.worked, self._set_up))
        if self._now is None:
            self._fetching.pause(False)

    def _general_refusal(self) -> str | None:
        if self._tape.in_backward:
            return "steps-in-backward"  # what a thread is told there, torch takes back at the end of the backward pass
        if self._profile.lost:
            return "script-profiles"  # and would find our looks in its profile
        return None

    def _go_on(self) -> None:
        look, steps = self._now, self._steps - self._first
        if self._elsewhere() != self._before and self._tries < MOST_TRIES:
            self._tries += 1
            look.again()
            self._first, self._before, self._began = self._steps, self._elsewhere(), perf_counter_ns()
        elif steps >= look.steps:
            ended = perf_counter_ns()
            took = ended - self._began
            try:
                found = look.end(steps)
                self._now = None
                clear_up = perf_counter_ns() - ended
                self._tape.note((self._tape.clock.worked, clear_up))
                slower = max(0, took - steps * self._usual()) if self._usual() else 0
                self._taken += 1
                self._write(look=look.name, steps=steps, took_ns=took, cost_ns=self._set_up + clear_up + slower, **found)
            except Exception as error:
                fault(f"deep.{look.name}", error)
                self._abandon("failed")
            self._tries = 0

    def _elsewhere(self) -> tuple[int, int]:
        clock = self._tape.clock
        return clock.validation_batches, clock.totals[CHECKPOINT]

    def _usual(self) -> int:
        times = self._times
        lengths = sorted(times[i] - times[i - 1] for i in range(1, len(times)))
        return lengths[len(lengths) // 2] if lengths else 0

    def _set_aside(self) -> None:
        """Until the next step, where it can begin anew."""
        look = self._now
        self._tries += 1
        if self._tries > MOST_TRIES or not look.restarts:
            self._abandon("disturbed")
            return
        self._now = None
        self._waiting.insert(0, look)
        self._put_away(look)

    def _abandon(self, reason: str) -> None:
        look, self._now = self._now, None
        self._tries = 0
        if look is not None:
            self._put_away(look)
            self._write(look=look.name, reason=reason)

    def _put_away(self, look: Any) -> None:
        try:
            look.abandon()
        except Exception as error:
            fault(f"deep.{look.name}", error)

    def _give_up(self) -> None:
        self._waiting.clear()
        if self._now is not None:
            self._abandon("failed")
        self._fetching.pause(False)
