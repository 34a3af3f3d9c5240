"""Copies between host and device, and calls that block until the device is done.

`to`, `cuda` and `cpu` are replaced by twins that compare and hash equal to the originals: torchvision and torch itself
keep these in sets and look them up when a tensor subclass is used (`func in {torch.Tensor.to}`). `item` and `tolist` are
plain functions, which cost a third of a twin's call: optimizers read the host's own step counts by the dozen.
"""

from __future__ import annotations

from threading import get_ident
from time import perf_counter_ns
from types import MethodType
from typing import Any, Callable

from _flatout_agent.clock import StepClock
from _flatout_agent.guard import fault
from _flatout_agent.patch import Patches, dress
from _flatout_agent.tape import Tape


class MethodTwin:
    """Stands for a method of the tensor class: same hash, equal, same name and documentation; its calls are timed."""

    def __init__(self, original: Any, timed: Callable[..., Any]) -> None:
        self._original = original
        self._timed = timed
        self.__doc__ = original.__doc__

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        return self if tensor is None else MethodType(self._timed, tensor)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._timed(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._original

    def __hash__(self) -> int:
        return hash(self._original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __repr__(self) -> str:
        return repr(self._original)

    def __reduce__(self) -> Any:
        return self._original.__reduce__()


def watch(torch: Any, tape: Tape, patches: Patches) -> None:
    sampler = CopySampler(torch, tape.clock)
    for name in ("to", "cuda"):
        original = getattr(torch.Tensor, name)
        patches.put(torch.Tensor, name, MethodTwin(original, _timed_move(original, tape, sampler)))
    patches.put(torch.Tensor, "cpu", MethodTwin(torch.Tensor.cpu, _timed_read(torch.Tensor.cpu, tape, "cpu", 0)))
    for name in ("item", "tolist"):
        original = getattr(torch.Tensor, name)
        patches.put(torch.Tensor, name, _read_value(original, _timed_read(original, tape, name, 1)))
    patches.put(torch.cuda, "synchronize", _timed_wait(torch.cuda.synchronize, tape))


def _timed_move(original: Any, tape: Tape, sampler: CopySampler) -> Any:
    def move(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != tape.owner:
            return original(tensor, *args, **kwargs)
        before = _event_before(sampler) if tape.sampling else None
        began = perf_counter_ns()
        moved = original(tensor, *args, **kwargs)
        try:
            if moved is tensor or tensor.is_cpu == moved.is_cpu:
                return moved  # models cast by the hundred: they leave here
            ended = perf_counter_ns()
            if moved.is_cpu:
                tape.inside(tape.clock.waited, ended - began)
                if tape.look is not None:
                    tape.look.reads.waited("to", ended - began, 1, tape.unstepped)
            else:
                tape.inside(tape.clock.copied, ended - began)
                if before is not None:
                    sampler.after(before, ended - began, moved)
                    if tape.look is not None:
                        tape.look.reads.copied(tensor, bool(kwargs.get("non_blocking")))
        except Exception as error:
            fault("transfers.move", error)
        return moved

    return move


def _event_before(sampler: CopySampler) -> Any:
    try:
        return sampler.before()
    except Exception as error:
        fault("transfers.before", error)
        return None


def _timed_read(original: Any, tape: Tape, name: str, depth: int) -> Any:
    """`depth` frames of ours lie between this and the script's call."""

    def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        # The host's own numbers first: optimizers read one per parameter and step.
        if tensor.is_cpu or get_ident() != tape.owner:
            return original(tensor, *args, **kwargs)
        began = perf_counter_ns()
        value = original(tensor, *args, **kwargs)
        try:
            spent = perf_counter_ns() - began
            tape.inside(tape.clock.waited, spent)
            if tape.look is not None:
                tape.look.reads.waited(name, spent, depth + 1, tape.unstepped)
        except Exception as error:
            fault("transfers.read", error)
        return value

    return read


def _read_value(original: Any, timed: Any) -> Any:
    def value(tensor: Any) -> Any:
        return original(tensor) if tensor.is_cpu else timed(tensor)

    return dress(value, original)


def _timed_wait(original: Any, tape: Tape) -> Any:
    def synchronize(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != tape.owner:
            return original(*args, **kwargs)
        began = perf_counter_ns()
        try:
            return original(*args, **kwargs)
        finally:
            try:
                tape.inside(tape.clock.waited, perf_counter_ns() - began)
            except Exception as error:
                fault("transfers.synchronize", error)

    return dress(synchronize, original)


class CopySampler:
    """How much of a blocking copy is the copy, and how much is waiting for work that was queued before it.

    `tensor.to(device)` from pageable memory returns when the device has done all it was given before. Two events
    around it on some steps tell the two apart; they are read later, without waiting.
    """

    MOST_PENDING = 64

    def __init__(self, torch: Any, clock: StepClock) -> None:
        self._cuda = torch.cuda
        self._clock = clock
        self._pending: list[tuple[Any, Any, int]] = []
        self._spare: list[Any] = []

    def before(self) -> Any:
        cuda = self._cuda
        if not cuda.is_initialized():
            return None  # a forked child, too: the events of its parent are not its own
        if cuda.is_current_stream_capturing() or len(self._pending) >= self.MOST_PENDING:
            self._resolve()
            return None
        return self._record()

    def after(self, before: Any, host: int, moved: Any) -> None:
        if moved.device.type != "cuda" or moved.device.index != self._cuda.current_device():
            self._spare.append(before)
            return
        self._pending.append((before, self._record(), host))
        self._resolve()

    def _record(self) -> Any:
        event = self._spare.pop() if self._spare else self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream())
        return event

    def _resolve(self) -> None:
        while self._pending and self._pending[0][1].query():
            before, after, host = self._pending.pop(0)
            self._clock.copy_device_ns += int(before.elapsed_time(after) * 1e6)
            self._clock.copy_host_ns += host
            self._spare += (before, after)
