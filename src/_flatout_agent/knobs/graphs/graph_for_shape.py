"""A recording for one shape and format of the inputs, compared with the plain pass before it is used."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

from _flatout_agent.knobs.graphs.graph_guards import Holdings
from _flatout_agent.knobs.graphs.graph_recording import Pass, Recorder, both_passes
from _flatout_agent.knobs.knob import Outcome, refused
from _flatout_agent.knobs.state_snapshot import Snapshot

FAR = 1e-2  # of the norm: other kernels may have been chosen, other numbers not
STIRRED = 0.3  # much more than that


class Variant:
    def __init__(self, torch: Any, recorder: Recorder, run: Pass, module: Any, holdings: Holdings) -> None:
        self._torch = torch
        self.reached: list[set[int]] = []  # the weights that each output trains, of those outputs that train any
        self._trained: dict[tuple[bool, ...], list[bool]] = {}  # by the outputs that got a gradient: which weights get one
        self._recorder = recorder
        self._run = run
        self._module = module
        self._holdings = holdings
        self.wanted = holdings.wanted()
        self.returned: Any = None  # of the call that was recorded: its structure stands for all that follow
        self.differentiable: list[bool] = []  # which of what is returned can get a gradient
        self.given: list[Any] = []
        self.number = 0  # of replays
        self.exact = False
        self._recording: Any = None
        self._gradients: list[Any] = []

    def record(self, inputs: list[Any], before: Snapshot) -> Outcome | None:
        """Why it cannot be used, if it cannot."""
        with self._recorder.no_waiting():
            both_passes(self._torch, self._run, inputs, self.wanted, self._module)
        recording = self._recording = self._recorder.record(self._run, inputs, self.wanted, self._module)
        self._gradients = [part for part in recording.gradients if part is not None]
        pairs = self._compared(inputs, before)
        self.exact = all(self._torch.equal(plain, seen) for plain, seen in pairs if plain is not None and seen is not None)
        return None if all(_near(plain, seen) for plain, seen in pairs) else refused("replay-differs")

    def _compared(self, inputs: list[Any], before: Snapshot) -> list[tuple[Any, Any]]:
        """Plain and replayed, with other numbers everywhere than it was recorded with: so nothing can be right only because it
        has stayed the same."""
        torch, holdings, recording = self._torch, self._holdings, self._recording
        before.restore()
        with stirred_weights(torch, holdings, inputs) as others:
            stirred = Snapshot(torch, self._module, [place.index for place in holdings.devices() if place.index is not None])
            plain = both_passes(torch, self._run, others, self.wanted, self._module)
            stirred.restore()
            for place, part in zip(recording.inputs, others):  # noqa: B905
                place.copy_(part)
            recording.forward()
            for place in recording.given:
                place.fill_(1)
            recording.backward()
        return list(zip(plain, (*recording.outs, *recording.gradients)))  # noqa: B905

    def forward(self) -> tuple[Any, ...]:
        self.number += 1
        recording = self._recording
        for place, given in zip(recording.inputs, self.given):  # noqa: B905
            place.copy_(given, non_blocking=True)
        self.given = []
        recording.forward()
        return tuple(out.clone() for out in recording.outs)

    def backward(self, gradients: Any) -> list[Any]:
        """`gradients`: of each output that can have one, None where it got none."""
        recording = self._recording
        got = tuple(gradient is not None for gradient in gradients)
        if not any(got):  # whatever came after has none: then the weights have none either
            return [None] * len(self.wanted)
        for place, gradient in zip(recording.given, gradients):  # noqa: B905
            if gradient is None:
                place.zero_()
            else:
                place.copy_(gradient)
        recording.backward()
        # Copies, all in a few launches: a script may keep its gradients, or add to them.
        copies = iter(self._torch._foreach_mul(self._gradients, 1)) if self._gradients else iter(())
        made = [None if part is None else next(copies) for part in recording.gradients]
        return made if all(got) else [part if own else None for part, own in zip(made, self._trained_by(got))]  # noqa: B905

    def _trained_by(self, got: tuple[bool, ...]) -> list[bool]:
        """No gradient is not the same as one of zeros: an optimizer leaves out weights without one."""
        known = self._trained.get(got)
        if known is None:
            reached = set().union(*(weights for weights, own in zip(self.reached, got) if own))  # noqa: B905
            known = self._trained[got] = [id(weight) in reached for weight in self.wanted]
        return known


def leaves(outs: list[Any]) -> set[int]:
    """The tensors that a backward pass from here would give gradients to."""
    found: set[int] = set()
    seen, left = set(), [out.grad_fn for out in outs]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.add(id(variable))
        left += [following for following, _ in node.next_functions]
    return found


@contextlib.contextmanager
def stirred_weights(torch: Any, holdings: Holdings, inputs: list[Any]) -> Iterator[list[Any]]:
    """For a while weights, buffers and (copies of) inputs have other numbers. Buffers are the caller's to restore."""
    kept = [*holdings.weights, *holdings.attributes]
    own = [tensor.detach().clone() for tensor in kept]
    try:
        for tensor in kept:
            _stir(torch, tensor.data, shift=0.02)
        for tensor in holdings.buffers:
            _stir(torch, tensor.data, shift=0.0)  # a variance stays positive
        others = [part.detach().clone() for part in inputs]
        for part in others:
            _stir(torch, part, shift=0.02)
        yield others
    finally:
        for tensor, was in zip(kept, own):  # noqa: B905
            tensor.data.copy_(was)


def _stir(torch: Any, tensor: Any, shift: float) -> None:
    """Indices are left alone: another one may lie outside."""
    if tensor.is_floating_point():
        tensor.mul_(1 + STIRRED * torch.rand_like(tensor)).add_(torch.randn_like(tensor), alpha=shift)


def _near(plain: Any, seen: Any) -> bool:
    if plain is None or seen is None:
        return plain is seen
    plain, seen = plain.detach().float(), seen.detach().float()
    return bool((plain - seen).norm() <= FAR * plain.norm() + 1e-12)
