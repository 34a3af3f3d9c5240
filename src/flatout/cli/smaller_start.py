"""A script that runs out of memory at its own batch size: where another one is asked for, the search begins at a smaller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flatout.base.errors import UsageError
from flatout.base.records import Missing, replace
from flatout.cli.batch_flags import Wanted

if TYPE_CHECKING:
    from flatout.tune.batch_line import BatchLine
    from flatout.tune.model import Finished
    from flatout.tune.trials import Trials

UNKNOWN_OWN = 32  # taken for the own size of a script that does not say it
STEPS = (2, 4)  # the first and all others: what a start costs is more than the doublings on the way back


def look(
    trials: Trials, line: list[str], wish: Wanted | None, resumed: Path | None
) -> tuple[dict[str, Any] | None, int | None]:
    """What the first child says of the script's parts, and the batch that it was started with where that is not its own."""
    from flatout.tune.first_look import OUT_OF_MEMORY

    ready = trials.look()
    own = _own_line(wish, resumed) if wish is not None else None
    if wish is None or own is None:
        return ready, None
    for size in _smaller(own, resumed):
        if ready is not None or trials.nothing.code != OUT_OF_MEMORY:
            break
        trials.begin_with(_command(trials, own, line, size))
        ready = trials.look()
        if ready is not None:
            _begin_at(wish, own, size)
            return ready, size
    return ready, None


def _own_line(wish: Wanted, resumed: Path | None) -> BatchLine | None:
    """None where the learning rate is to follow a batch that nobody knows."""
    from flatout.tune.batch_line import RateRule, batch_line
    from flatout.tune.session import resumable

    if resumed is not None:
        return resumable(resumed, None).plan.batch_line
    guess = UNKNOWN_OWN if wish.rule is RateRule.KEEP else None
    try:
        return batch_line(wish.batch, wish.rate, wish.rule, guess)
    except UsageError:
        return None


def _smaller(line: BatchLine, resumed: Path | None) -> Iterator[int]:
    if resumed is not None:
        yield line.own  # there the search began
        return
    size, (step, further) = line.own, STEPS
    while size > 1:
        size, step = max(1, size // step), further
        yield size


def _command(trials: Trials, own: BatchLine, line: list[str], size: int) -> list[str]:
    from flatout.tune.batch_line import Road

    if own.road is Road.CONFIGURATION and trials.at_size is not None:
        return trials.at_size(own, size)
    return own.command(line, size)


def _begin_at(wish: Wanted, own: BatchLine, size: int) -> None:
    """As if the user had said so: the learning rate of this size is the one that others follow from."""
    if not isinstance(wish.batch, Missing):
        wish.batch = replace(wish.batch, value=str(size))
    rate = own.rate_at(size)
    if rate is not None and not isinstance(wish.rate, Missing):
        wish.rate = replace(wish.rate, value=rate)


def kept(end: Finished, line: BatchLine | None, size: int | None) -> Finished:
    """With the batch at which the search began, where it found no other: at its own the script does not even start."""
    from flatout.tune.model import Ending

    if line is None or size is None or end.batch is None or "batch_size" in end.profile:
        return end
    nothing = end.ending in (Ending.FLAT_OUT, Ending.NOTHING_SHOWN)
    return replace(
        end,
        ending=Ending.SMALLER if nothing else end.ending,
        profile={**end.profile, "batch_size": str(size)},
        batch=replace(end.batch, size=size, arguments=line.arguments(size)),
    )
