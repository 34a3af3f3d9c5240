"""A stand-in for CUDA graphs where there is no card: the operations of a pass on a tape, run again on the same memory.

As on a card nothing of Python happens in a replay. What waits for numbers cannot be taped. Recurrent layers of the processor
work in place on memory that the tape does not see: `Again` runs their Python once more instead.
"""

import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from _flatout_agent.knobs.compile import Recorded
from _flatout_agent.knobs.graphs.graph_recording import both_passes, gradients_of, trained, twins_of

WAITS = "_local_scalar_dense"


class Tape(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self._operations = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        held = tree_map(lambda part: part.detach() if isinstance(part, torch.Tensor) else part, (args, kwargs))
        out = function(*args, **kwargs)
        if WAITS in str(function):
            raise RuntimeError("operation not permitted when stream is capturing")
        given = {part.untyped_storage().data_ptr() for part in tree_leaves((args, kwargs)) if isinstance(part, torch.Tensor)}
        made = [(number, part.detach()) for number, part in enumerate(tree_leaves(out)) if isinstance(part, torch.Tensor)]
        fresh = [(number, part) for number, part in made if part.untyped_storage().data_ptr() not in given]
        self._operations.append((function, *held, fresh))
        return out

    def replay(self):
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            for function, args, kwargs, fresh in self._operations:
                new = tree_leaves(function(*args, **kwargs))
                for number, place in fresh:
                    place.copy_(new[number])


class NoWaiting(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if WAITS in str(function):
            raise RuntimeError("called a synchronizing operation")
        return function(*args, **(kwargs or {}))


class Taped:
    """`Recording`, on tapes."""

    def __init__(self, run, inputs, wanted, module):
        self.inputs = [tensor.detach().clone() for tensor in inputs]
        for _ in range(2):
            both_passes(torch, run, self.inputs, wanted, module)
        self._forward, self._backward = Tape(), Tape()
        with twins_of(torch, module) as twins:
            with self._forward:
                self._held = run(self.inputs)
            self.given = [torch.empty_like(out) for out in trained(self._held)]
            with self._backward:
                weights = [twins[id(weight)] for weight in wanted]
                gradients = gradients_of(torch, trained(self._held), weights, self.given, keep=True)
        self.outs = [out.detach() for out in self._held]
        self.gradients = [None if one is None else one.detach() for one in gradients]

    def forward(self):
        self._forward.replay()

    def backward(self):
        self._backward.replay()


class TapedForward:
    """`ForwardRecording`, on a tape."""

    def __init__(self, run, inputs, module):
        self.inputs = [tensor.detach().clone() for tensor in inputs]
        self._tape = Tape()
        with twins_of(torch, module), self._tape:
            outs = run(self.inputs)
        self.outs = [out.detach() for out in outs]

    def forward(self):
        self._tape.replay()


class Again:
    """The pass itself once more, on the same inputs and with the same weights."""

    def __init__(self, run, inputs, wanted, module):
        self._run, self._wanted, self._module = run, wanted, module
        self.inputs = [tensor.detach().clone() for tensor in inputs]
        found = both_passes(torch, run, self.inputs, wanted, module)
        count = len(found) - len(wanted)
        self.outs = [out.clone() for out in found[:count]]
        self.gradients = [None if one is None else one.clone() for one in found[count:]]
        self.forward()
        self.given = [torch.empty_like(out) for out in trained(self._through)]

    def forward(self):
        with torch.enable_grad():
            self._through = self._run(self.inputs)
        for place, out in zip(self.outs, self._through, strict=True):
            place.copy_(out.detach())

    def backward(self):
        through = trained(self._through)
        found = torch.autograd.grad(through, self._wanted, self.given, allow_unused=True, retain_graph=True)
        for place, one in zip(self.gradients, found, strict=True):
            if place is not None:
                place.copy_(one)


class Here:
    """The recorder's promises, on the processor."""

    device_type = "cpu"
    kind = Taped

    def __init__(self, torch):
        self.mended = 0

    def home(self):
        return torch.device("cpu")

    def is_busy(self):
        return False

    def record(self, run, inputs, wanted, module):
        return self.kind(run, inputs, wanted, module)

    def record_forward(self, run, inputs, module):
        return TapedForward(run, inputs, module)

    @contextlib.contextmanager
    def no_waiting(self):
        with NoWaiting():
            yield

    def mend(self, states):
        self.mended += 1


class RecordedHere(Recorded):
    """The knob as it is where there is a card."""

    recorder = Here

    def put_on(self, scene, value):
        scene.has_cuda = lambda: True
        return super().put_on(scene, value)
