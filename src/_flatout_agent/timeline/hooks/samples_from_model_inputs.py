"""How many samples a step takes where no DataLoader tells: by what goes into the model.

Only where steps come without batches of a loader, a few whole steps of the beginning are watched by global hooks on modules:
the first dimension of what the outermost calls get, added up over the calls of a step. Where a loader gives the batches these
hooks are never put on.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.module_hooks import Hooks, are_walked, put_on
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.hooks.optimizer_steps import compiling_test
from _flatout_agent.timeline.samples_in_batch import size_of

STEPS = 3  # whole ones that are watched
MOST_TICKS = 256  # of optimizers, before it is given up
WITHOUT_BATCHES = 8  # optimizer steps in a row, where a loader gave batches before


class Calls:
    """Of one root within one step."""

    __slots__ = ("samples", "tokens")

    def __init__(self) -> None:
        self.samples = self.tokens = 0


class Inputs:
    """Told by the tape of every optimizer's step, until it knows or gives up. A compilation ends it."""

    def __init__(self, torch: Any, tape: Tape) -> None:
        self._torch = torch
        self._tape = tape
        self._is_compiling = compiling_test(torch)
        self._hooks: Hooks | None = None
        self._inside: Any = None  # a weak reference to the root whose call is under way
        self._step: dict[int, Calls] = {}  # identity of a root -> its calls, in the order of their first ones
        self._seen: list[dict[int, Calls]] = []  # whole steps
        self._begun = False
        self._counted = self._without = 0
        self._optimizers = 0
        tape.inputs, tape.met = self, self._met

    def _met(self) -> None:
        """A further optimizer: what a step is, is open again."""
        self._optimizers += 1
        self._begun = False
        self._seen.clear()
        if self._tape.ticks < MOST_TICKS:
            self._tape.inputs = self

    def stepped(self, batches_since: int) -> None:
        """At the end of an optimizer's step."""
        try:
            self._stepped(batches_since)
        except Exception as error:
            fault("inputs.stepped", error)
            self.end()

    def _stepped(self, batches_since: int) -> None:
        tape = self._tape
        self._without = 0 if batches_since else self._without + 1
        if (self._hooks or self._may_begin()) and are_walked():
            return  # at the next step, then
        if tape.ticks > MOST_TICKS or tape.dynamo or (batches_since and self._hooks):
            self.end()  # compiled code may guard on hooks; and a loader tells more
            return
        if not self._hooks:
            if self._may_begin():
                self._begin()
            elif tape.ticks > WITHOUT_BATCHES and batches_since:
                self.end()
            return
        tape.tell()
        counted, self._counted = self._counted, tape.clock.steps
        if self._counted > counted:  # a step has just begun to be counted: between two of these lies a whole one
            if self._begun:
                self._seen.append(self._step)
            self._begun = True
            self._step = {}
            if len(self._seen) >= STEPS:
                self._conclude()

    def _may_begin(self) -> bool:
        return self._without >= WITHOUT_BATCHES or not self._tape.iterator

    def _begin(self) -> None:
        self._hooks = put_on(self._entered, self._left, named=True)
        self._tape.tell()
        self._counted = self._tape.clock.steps
        self._begun = self._optimizers < 2
        self._step = {}

    def _conclude(self) -> None:
        self.end()
        steps = [one for one in (self._of(step) for step in self._seen) if one is not None]
        # Where a step is of another size each time, three say nothing of the rest.
        if len(steps) == STEPS and len({(one.samples, one.tokens) for one in steps}) == 1 and steps[0].samples:
            self._tape.note((self._tape.clock.knows_inputs, steps[0].samples))
            if steps[0].tokens and self._tape.look is not None:
                self._tape.look.tokens += steps[0].tokens
                self._tape.look.tokened_samples += steps[0].samples

    def _of(self, step: dict[int, Calls]) -> Calls | None:
        """Of a GAN's two roots one judges real and made-up samples, the other makes them. Else the first one gets the data."""
        calls = [one for one in step.values() if one.samples]
        if not calls:
            return None
        return min(calls, key=lambda one: one.samples) if self._optimizers > 1 else calls[0]

    def end(self) -> None:
        if self._hooks is not None:
            self._hooks.take_off()
        self._hooks = self._inside = self._tape.inputs = None

    def take_off(self) -> None:
        self.end()
        self._tape.met = None

    def _entered(self, module: Any, args: Any) -> None:
        # Mostly a compilation has ended this. Where that failed, Dynamo looks into it, and fails on a module met twice.
        if self._is_compiling() or (self._inside is not None and self._inside() is not None):
            return
        try:
            if self._torch.is_grad_enabled() and any(one.requires_grad for one in module.parameters()):
                self._inside = ref(module)
        except Exception as error:
            fault("inputs.entered", error)

    def _left(self, module: Any, args: Any, *after: Any) -> None:
        """Where the call raised torch gives no names, and None came out."""
        if self._is_compiling() or self._inside is None or self._inside() is not module:
            return
        try:
            self._inside = None
            kwargs, output = after if len(after) > 1 else ({}, after[0])
            given = (*args, *kwargs.values())
            samples = size_of(given) or size_of(output)
            calls = self._step.setdefault(id(module), Calls())
            calls.samples += samples
            calls.tokens += next((part.numel() for part in given if is_tokens(part)), 0)
        except Exception as error:
            fault("inputs.left", error)


def is_tokens(part: Any) -> bool:
    """Whole numbers in two dimensions."""
    return getattr(part, "ndim", 0) == 2 and str(getattr(part, "dtype", "")) in ("torch.int64", "torch.int32")
