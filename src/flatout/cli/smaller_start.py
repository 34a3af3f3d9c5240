"""If a script runs out of memory at its own batch size, the search for a batch size starts at a smaller one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flatout.base.records import Missing, Struct, replace
from flatout.cli.batch_flags import Wanted

if TYPE_CHECKING:
    from flatout.tune.batch.command_line import BatchLine
    from flatout.tune.execution.trial_runner import Trials
    from flatout.tune.search.questions_and_answers import Plan

UNKNOWN_OWN = 32  # taken for the own size of a script that does not say it
FIRST, FURTHER = 2, 4  # what a start costs is more than the doublings on the way back


class Smaller(Struct, frozen=True):
    size: int  # with which it starts
    own: int  # with which it does not; 0 where it does not say it


def look(
    trials: Trials, line: list[str], wish: Wanted | None, resumed: Path | None
) -> tuple[dict[str, Any] | None, Smaller | None]:
    """What the first child says of the script's parts, and the batch that it was started with where that is not its own."""
    from flatout.tune.execution.failed_first_look import NOTHING_FITS, OUT_OF_MEMORY, NothingToTry

    ready = trials.look()
    plan = _plan_of(resumed)
    planned = plan.batch_line if plan is not None else None
    if ready is not None or trials.nothing.code != OUT_OF_MEMORY or (wish is None and planned is None):
        return ready, None
    own = planned or _own_line(wish)
    said = trials.nothing.details
    smallest = own.own
    for size in _smaller(own, trials, plan):
        trials.begin_with(_command(trials, own, line, size))
        ready = trials.look()
        if ready is not None:
            return ready, _begun(wish, own, size, plan)
        smallest = size
    if trials.nothing.code == OUT_OF_MEMORY:
        trials.nothing = NothingToTry(NOTHING_FITS, {**said, "batch": smallest})
    else:
        other = trials.nothing.details.get("said", trials.nothing.code)
        trials.nothing = NothingToTry("fails-smaller", {**said, "batch": smallest, "other": other})
    return None, None


def _plan_of(resumed: Path | None) -> Plan | None:
    from flatout.tune.execution.session import resumable

    return resumable(resumed, None).plan if resumed is not None else None


def _own_line(wish: Wanted | None) -> BatchLine:
    """What is not known is said, unless nothing depends on it."""
    from flatout.tune.batch.command_line import RateRule, batch_line

    assert wish is not None
    return batch_line(wish.batch, wish.rate, wish.rule, UNKNOWN_OWN if wish.rule is RateRule.KEEP else None)


def _smaller(line: BatchLine, trials: Trials, plan: Plan | None) -> Iterator[int]:
    """A size that fails in another way may be none that the script takes: then a power of two."""
    from flatout.tune.execution.failed_first_look import OUT_OF_MEMORY

    if plan is not None:
        yield line.own  # there the search began
        return
    size, step = line.own, FIRST
    while size > 1:
        power = 1 << (size.bit_length() - 1)
        odd = step == FURTHER and trials.nothing.code != OUT_OF_MEMORY and power < size
        size, step = power if odd else max(1, size // step), FURTHER
        yield size


def _command(trials: Trials, own: BatchLine, line: list[str], size: int) -> list[str]:
    from flatout.tune.batch.command_line import Road

    if own.road is Road.CONFIGURATION and trials.at_size is not None:
        return trials.at_size(own, size)
    return own.command(line, size)


def _begun(wish: Wanted | None, own: BatchLine, size: int, plan: Plan | None) -> Smaller:
    """As if the user had said so: the learning rate of this size is the one that others follow from."""
    if plan is not None:
        return Smaller(size, plan.batch_too_large or 0)
    assert wish is not None
    told = own.argument.value is not None
    if not isinstance(wish.batch, Missing):
        wish.batch = replace(wish.batch, value=str(size))
    rate = own.rate_at(size)
    if rate is not None and not isinstance(wish.rate, Missing):
        wish.rate = replace(wish.rate, value=rate)
    return Smaller(size, own.own if told else 0)
