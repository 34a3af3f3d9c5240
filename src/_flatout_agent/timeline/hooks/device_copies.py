"""Copies between host and device, and calls that block until the device is done.

Five methods of the tensor class are replaced by twins that compare, hash and pickle as the originals: torchvision, torch
itself and classes that override functions keep these methods in sets and tables and look them up there, made before or
after ours were put on. A twin gives the original's own bound method wherever there is nothing to time: for a number on the
host, in another thread, while a graph is traced, for a class that overrides functions. Without a device there is none of
ours on the class at all (`hook_suspension.py`).
"""

from __future__ import annotations

import sys
from threading import get_ident
from time import perf_counter_ns
from types import MethodType
from typing import Any, Callable

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import Patches, dress, leave_us_out
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.hooks.script_listeners import Listeners
from _flatout_agent.timeline.samples_in_batch import is_plain_tensor
from _flatout_agent.timeline.step_clock import StepClock

DEVICES = ("cuda", "xpu", "mtia", "hpu", "npu")  # parts of torch that say whether they are initialized


def device_at_hand(torch: Any) -> bool:
    """Whether a device other than the host is in use; asked without waking one."""
    for name in DEVICES:
        part: Any = sys.modules.get(f"torch.{name}")
        is_initialized = getattr(part, "is_initialized", None)
        if is_initialized is not None and is_initialized():
            return True
    has_metal = getattr(torch._C, "_mps_is_available", None)  # it has no such state, and is there on a Mac alone
    return sys.platform == "darwin" and has_metal is not None and bool(has_metal())


class MethodTwin:
    """Stands for a method of the tensor class: same hash, equal, same name and documentation; its calls are timed."""

    def __init__(self, original: Any, timed: Callable[..., Any]) -> None:
        self._original = original
        self._timed = timed
        self.__doc__ = original.__doc__

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        return self if tensor is None else MethodType(self._timed, tensor)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._timed(*args, **kwargs)
        except BaseException as error:
            leave_us_out(error)
            raise

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


class Asking:
    """Questions to tensors that no override and no mode of the script's hears."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self.modes = torch._C._len_torch_function_stack
        self.unheard = torch._C.DisableTorchFunction

    def on_host(self, tensor: Any) -> bool:
        """Of a class that answers such questions itself, that it is: then nothing of it is timed."""
        try:
            if type(tensor) in self._plain and not self.modes():
                return bool(tensor.is_cpu)
            if not is_plain_tensor(self._torch, type(tensor)):
                return True
            with self.unheard():
                return bool(tensor.is_cpu)
        except Exception as error:
            fault("transfers.on_host", error)
            return True


def watch(torch: Any, tape: Tape, patches: Patches) -> None:
    asking, sampler = Asking(torch), CopySampler(torch, tape.clock)
    listeners = Listeners(torch)
    for name in ("to", "cuda"):
        original = getattr(torch.Tensor, name)
        timed = _timed_move(original, tape, sampler, asking, listeners)
        patches.put(torch.Tensor, name, _twin(torch, original, timed, tape, asking, of_host=True))
    for name in ("cpu", "item", "tolist"):
        original = getattr(torch.Tensor, name)
        timed = _timed_read(original, tape, name, asking)
        patches.put(torch.Tensor, name, _twin(torch, original, timed, tape, asking, of_host=False))
    patches.put(torch.cuda, "synchronize", _timed_wait(torch.cuda.synchronize, tape))


def _twin(torch: Any, original: Any, timed: Any, tape: Tape, asking: Asking, of_host: bool) -> MethodTwin:
    """`of_host`: whether a call on the host's tensors is of interest, too."""
    tensor_class, parameter_class, modes, on_host = torch.Tensor, torch.nn.Parameter, asking.modes, asking.on_host
    traced = torch._C._get_tracing_state
    bound = original.__get__

    class Twin(MethodTwin):
        def __get__(self, tensor: Any, owner: Any = None) -> Any:
            if tensor is None:
                return self
            try:
                kind = type(tensor)
                # An optimizer reads the host's own step counts by the dozen: they leave here.
                if kind is tensor_class and not of_host and not modes() and tensor.is_cpu:
                    return bound(tensor)
                if kind is not tensor_class and kind is not parameter_class:
                    return bound(tensor)  # it may override this method, which is then given us, and calls us
                if get_ident() == tape.owner and traced() is None and (of_host or not on_host(tensor)):
                    return MethodType(timed, tensor)
            except Exception as error:
                fault("transfers.twin", error)
            return bound(tensor)

    return Twin(original, timed)


def _timed_move(original: Any, tape: Tape, sampler: CopySampler, asking: Asking, listeners: Listeners) -> Any:
    on_host = asking.on_host

    def move(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        timing = get_ident() == tape.owner
        before = _event_before(sampler, listeners) if timing and tape.sampling else None
        began = perf_counter_ns()
        try:
            moved = original(tensor, *args, **kwargs)
        except BaseException as error:
            leave_us_out(error)
            raise
        if moved is tensor or not timing:
            return moved
        try:
            to_host = on_host(moved)
            if on_host(tensor) == to_host:
                return moved  # models cast by the hundred: they leave here
            ended = perf_counter_ns()
            if to_host:
                tape.inside(tape.clock.waited, ended - began)
                if tape.look is not None:
                    tape.look.reads.waited("to", ended - began, tape.unstepped)
            else:
                tape.inside(tape.clock.copied, ended - began)
                if before is not None:
                    sampler.after(before, ended - began, moved)
                    if tape.look is not None:
                        with asking.unheard():
                            tape.look.reads.copied(tensor, bool(kwargs.get("non_blocking")))
        except Exception as error:
            fault("transfers.move", error)
        return moved

    return dress(move, original)


def _event_before(sampler: CopySampler, listeners: Listeners) -> Any:
    try:
        return None if listeners.hear() else sampler.before()
    except Exception as error:
        fault("transfers.before", error)
        return None


def _timed_read(original: Any, tape: Tape, name: str, asking: Asking) -> Any:
    def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        began = 0 if get_ident() != tape.owner or asking.on_host(tensor) else perf_counter_ns()
        try:
            value = original(tensor, *args, **kwargs)
        except BaseException as error:
            leave_us_out(error)
            raise
        if not began:
            return value
        try:
            spent = perf_counter_ns() - began
            tape.inside(tape.clock.waited, spent)
            if tape.look is not None:
                tape.look.reads.waited(name, spent, tape.unstepped)
        except Exception as error:
            fault("transfers.read", error)
        return value

    return dress(read, original)


def _timed_wait(original: Any, tape: Tape) -> Any:
    def synchronize(*args: Any, **kwargs: Any) -> Any:
        began = perf_counter_ns()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            leave_us_out(error)
            raise
        finally:
            if get_ident() == tape.owner:
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
