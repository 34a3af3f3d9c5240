"""After an out-of-memory error: which batch would fit, and the command to try. Estimated, never measured.

What a model holds whatever the batch (weights, gradients, the optimizer's state) stays; the rest grows with the batch. At the
moment of the error the rest is not complete, so the estimate is an upper bound and never above half of what failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from flatout.base.records import Missing
from flatout.machine.run_look import OutOfMemory

FIXED = ("parameters", "gradients", "optimizer")

# Of the card: the rest is taken by CUDA itself, and by pieces that fit nothing.
USABLE = 0.9

# Batches above it are taken in steps of eight: kernels like that, and the estimate is no finer.
ROUND_FROM = 16

FLAG = re.compile(r"(--(?:[\w-]*[-_])?(?:batch(?:[-_]size)?|bs|bsz)|-b|[\w.]*batch[-_]?size)(?:=(\d+))?")


def fitting_batch(told: OutOfMemory) -> int | Missing:
    """0 where even the smallest batch would not fit beside what the model itself holds."""
    batch, total = told.batch, told.memory.total_bytes
    if isinstance(batch, Missing) or batch < 1:
        return Missing("not-reported")
    half = batch // 2
    if isinstance(total, Missing) or not told.holders:
        return half
    fixed = sum(holder.bytes for holder in told.holders if holder.what in FIXED)
    grows = sum(holder.bytes for holder in told.holders if holder.what not in FIXED)
    room = USABLE * total - fixed
    if room <= 0:
        return 0
    fits = min(half, int(batch * room / grows)) if grows else half
    return fits // 8 * 8 if fits >= ROUND_FROM else fits


def next_command(command: Sequence[str], batch: int, fits: int) -> list[str]:
    """The same command with a smaller batch where it has a flag for it; empty where it has none."""
    words = list(command)
    for index, word in enumerate(words):
        found = FLAG.fullmatch(word)
        if found is None:
            continue
        if found[2] is not None:
            words[index] = f"{found[1]}={_scaled(int(found[2]), batch, fits)}"
            return words
        if index + 1 < len(words) and words[index + 1].isdecimal():
            words[index + 1] = str(_scaled(int(words[index + 1]), batch, fits))
            return words
    return []


def _scaled(value: int, batch: int, fits: int) -> int:
    """The flag may count per device, or before the batch was split: it shrinks by the same share."""
    return max(1, value * fits // batch)
