"""Calls of a module that may be recorded as CUDA graphs: what tells them apart, what they rely on, what stands against it."""

from __future__ import annotations

from typing import Any

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.knobs.graphs.call_layout import Layout, can_be_rebuilt
from _flatout_agent.knobs.graphs.forward_purity import Calls, Constant, Draws, doubt, unchanged
from _flatout_agent.knobs.graphs.graph_guards import Attributes, Holdings
from _flatout_agent.knobs.graphs.graph_recording import Recorder
from _flatout_agent.knobs.knob import Outcome, refused
from _flatout_agent.knobs.module_wrapper import Run
from _flatout_agent.knobs.nested_tensors import tensors_in
from _flatout_agent.knobs.root_modules import is_autocast_enabled
from _flatout_agent.knobs.state_snapshot import Snapshot

MOST_CHANGES = 12  # what is recorded again and again is no gain


class RecordableCalls:
    """Of one module. `why` says that nothing will be recorded any more."""

    def __init__(self, torch: Any, recorder: Recorder, attributes: Attributes) -> None:
        self._torch = torch
        self._recorder = recorder
        self._attributes = attributes
        self._holdings: Holdings | None = None
        self._version = 0
        self._constants: list[Constant] = []
        self._changed = 0  # times that what was recorded did not hold any more
        self.why: Outcome | None = None

    def forget(self) -> None:
        """All that was recorded: the module is not what it was."""
        raise NotImplementedError

    def takes(self, tensors: Any) -> bool:
        home = self._recorder.device_type
        if not all(part.device.type == home and not part.requires_grad for part in tensors):
            return False
        apart = len({part.data_ptr() for part in tensors}) == len(tensors)  # one tensor given twice is two in a recording
        return bool(tensors) and apart and not self._recorder.is_busy()

    def key_of(self, module: Any, inputs: Any, layout: Layout) -> Any:
        """By what recordings are told apart; None where nothing may be replayed. What no longer holds is thrown away."""
        holdings = self._holdings
        if holdings is not None and holdings.hooked():
            return None
        if holdings is None or not self._holds(holdings):
            self.forget()
            self._constants = []
            self._changed += 1
            if self._changed > MOST_CHANGES:
                self.why = refused("changes-too-often", changes=self._changed - 1)
                return None
            holdings = self._holdings = Holdings(self._torch, module)
            self._attributes.watch(holdings.parts)
            self._version = self._attributes.version
            if holdings.devices() != {self._recorder.home()}:
                self.why = refused("not-on-one-device")
                return None
        shapes = ((part.shape, part.stride(), part.dtype, part.device.index) for part in inputs)
        return None if holdings.hooked() else (layout, *shapes, *self._surroundings())

    def _holds(self, holdings: Holdings) -> bool:
        if not holdings.same() or not unchanged(self._constants):
            return False
        if self._version == self._attributes.version:
            return True
        self._version = self._attributes.version
        return holdings.same_numbers()

    def _surroundings(self) -> tuple[Any, ...]:
        torch = self._torch
        kind = self._recorder.device_type
        low = torch.get_autocast_dtype(kind) if is_autocast_enabled(torch, kind) else None
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        try:
            formats = (matmul.fp32_precision, cudnn.conv.fp32_precision)
        except AttributeError:  # before torch 2.9; there, reading the old flags raises once the new ones were set
            formats = (matmul.allow_tf32, cudnn.allow_tf32)
        return (low, *formats, cudnn.benchmark, cudnn.deterministic)

    def watched(self, inner: Run, module: Any, call: tuple[Any, Any]) -> Any:
        """A call of the script's own: whether one like it may be recorded. No call is made only to look at it: that would be a
        step too many for whatever counts its calls."""
        torch, calls, holdings = self._torch, Calls(), self._holdings
        assert holdings is not None
        fixed = [*holdings.weights, *holdings.attributes, *tensors_in(torch, call)]
        before = [tensor.detach().clone() for tensor in fixed]
        draws = Draws(torch, self._recorder.device_type)
        out = calls.watch(lambda: inner(module, *call))
        found, self._constants = doubt(calls, module, torch, self._recorder.device_type)
        if draws.seen():
            self.why = refused("host-draws")
        elif not can_be_rebuilt(torch, out):
            self.why = refused("several-outputs", kind=type(out).__name__)
        elif found:
            self.why = refused("python-may-differ", where=found)
        elif not all(torch.equal(tensor, own) for tensor, own in zip(fixed, before)):  # noqa: B905
            self.why = refused("changes-in-place")
        return out

    def kept_state(self, module: Any) -> Snapshot:
        assert self._holdings is not None
        indices = (each.index for each in self._holdings.devices() if each.index is not None)
        return Snapshot(self._torch, module, sorted(indices))

    def failed(self, error: Exception, before: Snapshot) -> Outcome:
        """A recording that broke off is not tried again; what it left behind is put right."""
        fault("apply.graphs", error)
        try:
            self._recorder.mend(before.cuda_states)
        except Exception as second:
            fault("apply.graphs.mend", second)
        return refused("cannot-be-recorded", error=f"{type(error).__name__}: {error}"[:300])
