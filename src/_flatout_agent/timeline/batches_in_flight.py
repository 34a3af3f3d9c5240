"""The batches in hand: fetched, and not yet known to be trained on.

A plain loop has one at a time. Accelerate and timm fetch one ahead, Transformers as many as it accumulates, some
scripts read two loaders in step, others evaluate with a batch to train on in hand. So each dataset has an account, one for
each line that makes loaders of it: a backward pass takes a batch from it, and what a loader gave without any being trained on
was validation.
"""

from __future__ import annotations

from _flatout_agent.timeline.script_loaders import LoaderUse

MOST_ACCOUNTS = 64


class Account:
    """What one dataset's loader has given, and the time that goes with it."""

    __slots__ = ("alive", "between", "ended", "input", "iterator", "known", "pending", "samples", "trained", "use")

    def __init__(self) -> None:
        self.use: LoaderUse | None = None
        self.known = False  # batches of this dataset have been trained on, in whatever epoch
        self.begin(0)

    def begin(self, iterator: int) -> None:
        self.iterator = iterator  # its number
        self.alive = True  # somebody holds it
        self.pending = 0
        self.samples = 0
        self.input = 0  # nanoseconds of the loader's own
        self.between = 0  # nanoseconds with these batches in hand, until another boundary
        self.trained = False  # one of its batches was, since the iterator began
        self.ended = False


class Hand:
    """The accounts by dataset, and the one whose batch came last."""

    def __init__(self) -> None:
        self.accounts: dict[int, Account] = {}
        self.of_iterator: dict[int, Account] = {}
        self.current: Account | None = None
        self.waiting = 0  # accounts with batches in hand: one, but for the cases above

    def account(self, source: int, iterator: int) -> Account:
        account = self.accounts.get(source)
        if account is None:
            account = self.accounts[source] = Account()
        self.of_iterator[iterator] = account
        return account

    def drop(self, account: Account) -> None:
        if account.pending:
            self.waiting -= 1
        account.pending = account.samples = account.input = account.between = 0

    def look(self) -> bool:
        """Whether there is a batch in hand: the one that came last, else one of a loader that is still read."""
        if self.current is None or not self.current.pending:
            rest = (account for account in self.accounts.values() if account.pending and account.alive)
            self.current = next(rest, None) if self.waiting else None
        return self.current is not None

    def to_train_on(self) -> list[Account]:
        """Of several with batches in hand: those trained on before, else those that fetched least ahead."""
        waiting = [account for account in self.accounts.values() if account.pending]
        alive = [account for account in waiting if account.alive] or waiting
        least = min(account.pending for account in alive)
        return [account for account in alive if account.known] or [account for account in alive if account.pending == least]

    def full(self) -> bool:
        return len(self.accounts) > MOST_ACCOUNTS

    def tidy(self, source: int) -> None:
        """A script that makes a dataset per epoch must not fill the memory."""
        if self.full():
            kept = self.accounts[source]
            self.accounts = {source: kept}
            self.of_iterator = {iterator: account for iterator, account in self.of_iterator.items() if account is kept}
