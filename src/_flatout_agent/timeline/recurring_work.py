"""Work that comes back within epochs, every so many steps: evaluations and checkpoints. How often, how long, at which steps."""

from __future__ import annotations


class Recurring:
    """One kind of it."""

    __slots__ = ("count", "first", "last", "spent")

    def __init__(self) -> None:
        self.count = 0
        self.spent = 0  # nanoseconds
        self.first = self.last = 0  # after so many steps

    def met(self, step: int, nanoseconds: int) -> None:
        """What comes after the same step is one time of it: a model and its optimizer are saved one after the other."""
        self.spent += nanoseconds
        if not self.count or step != self.last:
            self.first = self.first if self.count else step
            self.count += 1
            self.last = step

    def told(self) -> list[int]:
        return [self.count, self.spent, self.first, self.last]


class Saves:
    """What `torch.save` wrote to files."""

    __slots__ = ("largest", "path", "total")

    def __init__(self) -> None:
        self.total = self.largest = 0  # bytes
        self.path = ""  # of the largest

    def met(self, path: str, size: int) -> None:
        self.total += size
        if size >= self.largest:
            self.largest, self.path = size, path

    def told(self) -> dict[str, object]:
        return {"bytes": self.total, "largest": self.largest, "path": self.path}
