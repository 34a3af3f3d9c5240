"""The step clock: every moment of the training thread belongs to one phase, and only one.

It is told of boundaries (a batch arrived, a backward pass began, a step ended). The time since the last boundary is
given to the phase that this boundary reveals: what came before a backward pass was forward; what a loader gave without
a backward pass was validation. So the phases add up to the wall time by construction. It looks at no clock itself: the
hooks note the time on a tape, and it is read later.
"""

from __future__ import annotations

from typing import Any

from _flatout_agent.timeline.batches_in_flight import Account, Hand
from _flatout_agent.timeline.phase_totals import (
    BACKWARD,
    COPY,
    DEVICE_WAIT,
    FORWARD,
    INPUT,
    OPTIMIZER,
    SCRIPT,
    SHUTDOWN,
    STARTUP,
    TURN,
    VALIDATION,
    PhaseTotals,
)
from _flatout_agent.timeline.recurring_work import Recurring, Saves
from _flatout_agent.timeline.script_loaders import Loaders, LoaderUse
from _flatout_agent.timeline.step_grouping import Rounds
from _flatout_agent.wire import WARM_STEPS

# Where the training thread is, seen from the last boundary.
_START, _BATCH, _AFTER_BACKWARD, _AFTER_STEP, _ELSEWHERE, _ENDED = range(6)


class StepClock(PhaseTotals):
    """Totals in nanoseconds, of one training thread."""

    def start_over(self) -> None:
        """As new, for the hooks that hold it: a forked child has nothing of its parent's account."""
        super().start_over()
        self.steps = 0
        self.samples = 0
        self.batches = 0
        self.beside = 0  # of them: those of loaders that are read in step with another
        self.unsized_batches = 0
        self.validation_batches = 0
        self.backwards = 0
        self.foreign_batches = 0
        self.turns = 0  # from an epoch of training to the next
        self.script_outside = 0  # of the script's own code: between epochs and after the last step
        self.evaluations = 0  # stretches of validation, with steps between them
        self.recurring = {"validation": Recurring(), "checkpoint": Recurring()}  # within epochs
        self.saves = Saves()
        self.samples_before = 0  # of the steps before it was known what a step takes
        self.collected = 0  # inside Python's garbage collector, whatever the phase
        self.put_on = 0  # of flatout's own work: putting settings on
        self.warm: dict[str, object] | None = None
        self.loaders = Loaders()
        self.copy_device_ns = 0
        self.copy_host_ns = 0
        self.in_backward = False
        self._state = _START
        self._evaluating = False  # between the training model's `eval()` and its `train()`
        self._stepped_since = False  # the last stretch of validation
        self._step_samples = 0  # where no loader tells
        self._between = True  # before the first step, or from an epoch's end to the first step of the next
        self._hand = Hand()
        self._trained: Account | None = None  # whose batch was trained on last
        self._rounds = Rounds()
        self._stepping = 0  # the optimizer inside whose step we are, and how deep
        self._depth = 0

    # -- boundaries ----------------------------------------------------------------------------------------------

    def fetched(self, began: int, ended: int, size: int, iterator: int = 0) -> None:
        self._stepping = 0  # a step that raised never said that it ended
        self._leave(began)
        hand = self._hand
        account = hand.of_iterator.get(iterator) or hand.account(iterator, iterator)
        account.input += ended - began
        account.samples += size
        if not account.pending:
            hand.waiting += 1
        account.pending += 1
        hand.current = account
        self._state = _BATCH
        self._mark = ended

    def is_trained_on(self, source: int) -> bool:
        """Whether a backward pass took a batch of this dataset; of one that is not known, that it may be."""
        account = self._hand.accounts.get(source)
        return account is None or account.known

    def loader_started(self, began: int, ended: int, source: int = 0, iterator: int = 0, use: LoaderUse | None = None) -> None:
        """An iterator over the dataset `source` begins an epoch."""
        hand = self._hand
        account = hand.account(source, iterator)
        self._between = self._between or account.known
        self._leave(began)
        for other in hand.accounts.values():
            if other is account or other.ended or hand.full():
                self._settle(other)
        hand.tidy(source)
        account.begin(iterator)
        account.use = use
        account.input = ended - began
        self._back_to_hand(ended)

    def let_go(self, iterator: int) -> None:
        """Nobody holds the iterator any more."""
        account = self._hand.of_iterator.pop(iterator, None)
        if account is not None and account.iterator == iterator:
            account.alive = False

    def exhausted(self, began: int, ended: int, iterator: int = 0) -> None:
        """The loader had no further batch: what it cost goes with what its batches were for."""
        self._leave(began)
        account = self._hand.of_iterator.get(iterator) or self._hand.account(iterator, iterator)
        account.ended = True
        if account.trained:
            self.totals[TURN] += ended - began
            self._between = True
        else:
            account.input += ended - began
        if account.trained and account.pending:
            self._hand.current = account  # it was fetched ahead, and is trained on now
        else:
            self._settle(account)
        self._back_to_hand(ended)

    def backward_began(self, now: int) -> None:
        self.in_backward = True
        self._evaluating = False
        if self._state == _START:
            self._give(now, STARTUP)
        else:
            self._give(now, FORWARD)
            self._train_on_batch()
        self._between = False

    def backward_ended(self, now: int) -> None:
        self.in_backward = False
        self._give(now, BACKWARD)
        self.backwards += 1
        self._state = _AFTER_BACKWARD

    def step_began(self, now: int, optimizer: int) -> None:
        if self._stepping == optimizer:
            self._depth += 1  # a subclass's step that calls its parent's: one step
            return
        self._stepping = optimizer
        self._depth = 0
        if self.in_backward:
            self._give(now, BACKWARD)  # one optimizer per parameter, stepped as soon as its gradient is there
        elif self._state == _AFTER_BACKWARD:
            self._give(now, OPTIMIZER)
        elif self._state == _START:
            self._give(now, STARTUP)
            self._state = _ELSEWHERE
        else:
            self._give(now, FORWARD)  # no backward pass yet: the step runs a closure (L-BFGS, Lightning), which holds it

    def step_ended(self, now: int, optimizer: int) -> None:
        if self._depth and self._stepping == optimizer:
            self._depth -= 1
            return
        self._stepping = 0
        self._evaluating = False
        self._give(now, OPTIMIZER)
        if self._state == _BATCH and not self.in_backward:
            self._train_on_batch()  # without a backward pass: the gradients came by another way
        self._between = False
        self._state = _AFTER_STEP
        self.stepped(optimizer)

    def glanced(self, now: int, optimizer: int) -> None:
        """The end of a step of which nothing else was seen: divided like those that were seen whole."""
        self._divide(now)
        self._state = _AFTER_STEP
        self.stepped(optimizer)

    def glanced_row(self, row: list[Any], ended: int, optimizer: int, iterator: int) -> None:
        """Plain steps all at once, (asked, came, size) of each one's batch; each ends where the next batch is asked for."""
        account, ends = self._hand.of_iterator.get(iterator), [asked for asked, _, _ in row[1:]] + [ended]
        pairs = list(zip(row, ends))  # noqa: B905 (Python 3.9)
        if self._state != _AFTER_STEP or self._hand.waiting or self._any_inside or account is None:
            for (asked, came, size), end in pairs:
                self.fetched(asked, came, size, iterator)
                self.glanced(end, optimizer)
            return
        elsewhere, waiting, spent, steps = row[0][0] - self._mark, 0, 0, self.steps
        for (asked, came, size), end in pairs:
            waiting += came - asked
            spent += end - came
            self.samples += size
            self.unsized_batches += not size
            steps = self._rounds.count(optimizer, steps)
        self.totals[SCRIPT] += elsewhere
        self.totals[INPUT] += waiting
        if account.use is not None:
            account.use.wait += waiting
            account.use.batches += len(pairs)
        self._share_out(spent)
        self.batches += len(pairs)
        self.backwards += len(pairs)
        self.steps = steps
        self._mark = ended

    def glanced_backward(self, now: int) -> None:
        """A backward pass must have been, for another batch is asked for; no step followed it."""
        self._divide(now)
        self._state = _AFTER_BACKWARD

    def _divide(self, now: int) -> None:
        self._evaluating = False
        if self._state == _BATCH:
            self._train_on_batch()
        self._between = False
        before = self.totals[FORWARD]
        self._give(now, FORWARD)
        spent = self.totals[FORWARD] - before
        self.totals[FORWARD] = before
        self._share_out(spent)
        self.backwards += 1

    def stepped(self, optimizer: int) -> None:
        """Counts alone, and no time: on a GPU a step inside the backward pass is taken by a thread of torch's."""
        steps = self._rounds.count(optimizer, self.steps)
        if steps != self.steps:
            if self._step_samples:
                self.samples += self._step_samples * (steps - self.steps)
            self._stepped_since = True
            self.steps = steps
            if steps == WARM_STEPS:
                self.warm = {"samples": self.samples, "phases": list(self.totals), "script_outside": self.script_outside}

    def knows_inputs(self, samples: int) -> None:
        """By what goes into the model: so many samples a step, where they do not come from a loader."""
        if not self.batches:
            self.samples_before = samples * self.steps - self.samples
            if self.warm is not None:
                self.warm["samples"] = samples * WARM_STEPS
        self._step_samples = samples

    def evaluation_began(self, now: int) -> None:
        if self._state not in (_START, _ENDED):
            self._leave(now)
            self._evaluating = True

    def evaluation_ended(self, now: int) -> None:
        if self._evaluating:
            self._leave(now)
            self._evaluating = False

    # -- inside a phase ------------------------------------------------------------------------------------------

    def copied(self, nanoseconds: int) -> None:
        if self._state != _START:  # moving the model over belongs to the start-up
            self._inside[COPY] += nanoseconds
            self._any_inside = True

    def waited(self, nanoseconds: int) -> None:
        if self._state != _START:
            self._inside[DEVICE_WAIT] += nanoseconds
            self._any_inside = True

    def saved(self, began: int, ended: int) -> None:
        super().saved(began, ended)
        if self._state not in (_START, _ENDED) and not self._at_turn():
            self.recurring["checkpoint"].met(self.steps, ended - began)

    # -- the end -------------------------------------------------------------------------------------------------

    def main_ended(self, now: int) -> None:
        """The script's last line is done; what follows are exit handlers."""
        self._between = True
        self._leave(now)
        for account in self._hand.accounts.values():
            self._settle(account)
        self._state = _ENDED

    def finish(self, now: int) -> None:
        if self._state != _ENDED:
            self.main_ended(now)
        self._leave(now)

    # -- how time is given away ----------------------------------------------------------------------------------

    def _leave(self, now: int) -> None:
        """A boundary that is not part of training on the batch in hand."""
        current = self._hand.current
        if self._state == _START:
            self._give(now, STARTUP)
        elif self._state == _ENDED:
            self._give(now, SHUTDOWN)
        elif self._evaluating:
            self._evaluated(self._of_a_batch(now))  # its copies and waits are its own
        elif self._state == _BATCH and current is not None:
            current.between += self._of_a_batch(now)  # forward or validation: that will show
        else:
            before = self.totals[SCRIPT]
            self._give(now, SCRIPT)
            if self._between:
                self.script_outside += self.totals[SCRIPT] - before

    def _evaluated(self, spent: int) -> None:
        self.totals[VALIDATION] += spent
        self.evaluations += self._stepped_since
        self._stepped_since = False
        if not self._at_turn():
            self.recurring["validation"].met(self.steps, spent)

    def _at_turn(self) -> bool:
        """Also where the last batch of an epoch was fetched ahead, and its loader was at its end before it was trained on."""
        last = self._trained
        return self._between or (last is not None and last.ended and not last.pending)

    def _back_to_hand(self, now: int) -> None:
        """After a loader began or ended: the batch that was fetched before, if there is one, is in hand again."""
        self._state = _BATCH if self._hand.look() else _ELSEWHERE
        self._mark = now

    def _train_on_batch(self) -> None:
        """The batch in hand, if any, proves to be trained on."""
        hand = self._hand
        if hand.waiting == 1 and hand.current is not None and hand.current.pending:
            self._take(hand.current)
        elif hand.waiting:
            chosen, turns = hand.to_train_on(), self.turns
            for account in hand.accounts.values():
                if account in chosen:
                    self._take(account)
                elif account.pending:
                    self._settle(account)
            # Loaders that are read in step have their epochs together.
            self.turns = min(self.turns, turns + 1)
            self.beside += len(chosen) - 1

    def _take(self, account: Account) -> None:
        self._trained = account
        pending = account.pending
        size = account.samples // pending  # sizes are known as a sum, and the sum comes out right
        account.samples -= size
        account.pending = pending - 1
        if pending == 1:
            self._hand.waiting -= 1
        if account.known and not account.trained:
            self.turns += 1
            self.totals[TURN] += account.input
        else:
            self.totals[INPUT] += account.input
        account.trained = account.known = True
        self._step_samples = 0
        self.totals[FORWARD] += account.between
        if account.use is not None:
            account.use.wait += account.input
            account.use.batches += 1
        account.input = account.between = 0
        self.batches += 1
        self.samples += size
        if not size:
            self.unsized_batches += 1

    def _settle(self, account: Account) -> None:
        """What is left in the account is not trained on any more."""
        if account.pending and not account.trained:
            self.validation_batches += account.pending
            self._evaluated(account.input + account.between)
        else:
            self.totals[INPUT] += account.input
            self.totals[SCRIPT] += account.between
            if self._between:
                self.script_outside += account.between
        self._hand.drop(account)
