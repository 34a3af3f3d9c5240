"""Measures how long writing a file of a given size takes.

Also a program of its own, for the inside of what holds trials: it imports the standard library alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import perf_counter

BLOCK = 1 << 20
TIMES = 3


def seconds(opened: Callable[[], int], size: int) -> float:
    """The middle one of three; `opened` gives a new descriptor each time."""
    block, took = os.urandom(BLOCK), []
    for _ in range(TIMES):
        began = perf_counter()
        descriptor = opened()
        try:
            left = size
            while left > 0:
                left -= os.write(descriptor, block[: min(left, BLOCK)])
        finally:
            os.close(descriptor)
        took.append(perf_counter() - began)
    return sorted(took)[TIMES // 2]


def over(path: str) -> Callable[[], int]:
    """As a checkpoint is written: over what is there."""
    return lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)


if __name__ == "__main__":
    sys.stdout.write(f"{seconds(over(sys.argv[1]), int(sys.argv[2]))}\n")
