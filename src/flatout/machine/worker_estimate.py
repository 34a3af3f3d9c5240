"""How many loader workers to begin with on this machine: one estimate for the doctor, configurations and the library.

`flatout tune` measures.
"""

from __future__ import annotations

USUAL_SHARE = 2 / 3  # of the cores beside the training's own
MOST = 8  # beyond, a card's own process rarely keeps up with taking batches
MOST_ON_WINDOWS = 4  # each is a new interpreter that imports everything again


def most(system: str) -> int:
    return MOST_ON_WINDOWS if system == "Windows" else MOST


def by_cores(cores: float, cards: int = 1, share: float = USUAL_SHARE) -> int:
    """For each card; one core is the training's own."""
    return max(1, int((cores / max(1, cards) - 1) * share))


def estimate(cores: float, system: str, cards: int = 1) -> int:
    return min(most(system), by_cores(cores, cards))
