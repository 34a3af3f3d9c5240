"""Backward passes and optimizer steps."""

from __future__ import annotations

from threading import get_ident
from time import perf_counter_ns
from typing import Any

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.object_numbers import Identities
from _flatout_agent.core.patches import Patches, dress, leave_us_out
from _flatout_agent.timeline.event_buffer import Tape


def watch(torch: Any, tape: Tape, patches: Patches) -> Steps:
    from torch.optim import optimizer

    is_compiling = compiling_test(torch)

    # `Tensor.backward` calls `torch.autograd.backward` by name, so this one place sees both.
    on_backward = Patches()
    on_backward.put(torch.autograd, "backward", _timed_backward(torch.autograd.backward, tape, is_compiling))
    patches.on_take_off(on_backward.take_off)

    # Public and global: every optimizer, the user's own subclasses included.
    known = Identities()
    steps = Steps(known, on_backward, optimizer, _began_hook(tape, known, is_compiling), _ended_hook(tape, known, is_compiling))
    patches.on_take_off(steps.take_off)
    return steps


KEY = -1  # in torch's tables, which number the script's hooks from 0 on

# Takes whatever it is called with and gives None, without a line of Python: stands for a hook that is not wanted for a while.
IDLE = memoryview(b"").__exit__


class Steps:
    """The hooks around steps, so that some can be lifted for a while.

    They stay in torch's tables, under the same keys: torch walks these while it calls the script's hooks, and one of those may
    save a checkpoint or start another loader, which makes us look closely again. Only what stands under a key is exchanged.
    """

    def __init__(self, known: Identities, on_backward: Patches, optimizer: Any, began: Any, ended: Any) -> None:
        self._known = known
        self.on_backward = on_backward
        self.ended = ended
        self._began = began
        self._before, self._after = optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks
        self._before[KEY], self._after[KEY] = began, ended

    @property
    def only(self) -> int:
        """The identity of the optimizer, where there is but one."""
        return next(iter(self._known.numbers), 0) if len(self._known.numbers) == 1 else 0

    def number_of(self, identity: int) -> int:
        return self._known.numbers.get(identity, 0)

    def glance(self, ended: Any) -> None:
        """The ends of steps alone, by another hook."""
        self.on_backward.lift()
        self._exchange(IDLE, ended)

    def put_back(self) -> None:
        self.on_backward.put_back()
        self._exchange(self._began, self.ended)

    def _exchange(self, began: Any, ended: Any) -> None:
        for table, hook in ((self._before, began), (self._after, ended)):
            if KEY in table:  # else the script has emptied the table
                table[KEY] = hook

    def take_off(self) -> None:
        self._before.pop(KEY, None)
        self._after.pop(KEY, None)


def _began_hook(tape: Tape, known: Identities, is_compiling: Any) -> Any:
    began, numbers = tape.clock.step_began, known.numbers

    def step_began(stepping: Any, args: Any, kwargs: Any) -> None:
        if tape.dynamo and is_compiling():
            return
        try:
            now = perf_counter_ns()
            if get_ident() != tape.owner:
                if tape.ticks or tape.in_backward or not tape.owner:
                    return
                tape.owner = get_ident()  # training runs in a thread of the script's own
                if tape.moved is not None:
                    tape.moved()
            number = numbers.get(id(stepping))
            if number is None:
                number = known.of(stepping)
                tape.meet(stepping)
            tape.note((began, now, number))
        except Exception as error:
            fault("steps.began", error)

    return step_began


def _ended_hook(tape: Tape, known: Identities, is_compiling: Any) -> Any:
    ended, stepped, numbers = tape.clock.step_ended, tape.clock.stepped, known.numbers

    def step_ended(stepping: Any, args: Any, kwargs: Any) -> None:
        if tape.dynamo and is_compiling():
            return
        try:
            if get_ident() == tape.owner:
                now = perf_counter_ns()
                tape.note((ended, now, numbers.get(id(stepping)) or known.of(stepping)))
                tape.tick(now)
            elif tape.in_backward and tape.owner:
                tape.note((stepped, known.of(stepping)))  # inside the backward pass, in a thread of torch's
        except Exception as error:
            fault("steps.ended", error)

    return step_ended


def compiling_test(torch: Any) -> Any:
    """What Dynamo folds to True while it traces; older torch (2.0 to 2.2) has no public name for it."""
    for owner in (getattr(torch, "compiler", None), torch._utils):
        test = getattr(owner, "is_compiling", None)
        if test is not None:
            return test
    return lambda: False


def _timed_backward(original: Any, tape: Tape, is_compiling: Any) -> Any:
    began, ended = tape.clock.backward_began, tape.clock.backward_ended

    def backward(*args: Any, **kwargs: Any) -> Any:
        # Reentrant checkpointing calls it again from inside: the outermost call holds the rest.
        if tape.in_backward or get_ident() != tape.owner or (tape.dynamo and is_compiling()):
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                leave_us_out(error)
                raise
        try:
            tape.note((began, perf_counter_ns()))
            if tape.sampling and tape.look is not None:
                tape.look.mid_step(tape.ticks, args)
            if tape.every_loss is not None and args:
                tape.every_loss(args[0])
        except Exception as error:
            fault("steps.before_backward", error)
        tape.in_backward = True
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            leave_us_out(error)
            raise
        finally:
            tape.in_backward = False
            try:
                now = perf_counter_ns()
                tape.note((ended, now))
                if now >= tape.due:  # here and not only at steps: some scripts update their parameters by hand
                    tape.read(now)
            except Exception as error:
                fault("steps.backward", error)

    return dress(backward, original)
