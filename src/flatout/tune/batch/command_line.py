"""The command line for another batch size: through the script's own argument, and its learning rate by a named rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from flatout.base.errors import UsageError
from flatout.base.records import Missing, Struct
from flatout.base.whole_number import whole_number
from flatout.launch.own_argument import Argument, put


class RateRule(StrEnum):
    """What becomes of the learning rate when the batch grows by a factor."""

    KEEP = "keep"
    LINEAR = "linear"  # by the factor (Goyal and others, 2017)
    SQRT = "sqrt"  # by its root (Krizhevsky, 2014; for Adam: Malladi and others, 2022)


class Road(StrEnum):
    """Where the script reads its batch size from."""

    COMMAND = "command"  # an argument of its own
    CONFIGURATION = "configuration"  # a key of the file that it is started with; `Argument.flag` is its path there


class BatchLine(Struct, frozen=True, kw_only=True):
    """How the script is started with another batch size. `own` is its present one, in the units of its argument."""

    argument: Argument
    own: int
    rate: Argument | None = None
    rule: RateRule = RateRule.KEEP
    road: Road = Road.COMMAND

    def arguments(self, size: int) -> dict[str, str]:
        """What must be said on the command line, by flag."""
        if self.road is Road.CONFIGURATION:
            return {}
        said = {self.argument.flag: str(size)}
        rate = self.rate_at(size)
        if self.rate is not None and rate is not None:
            said[self.rate.flag] = rate
        return said

    def rate_at(self, size: int) -> str | None:
        """The learning rate that the rule gives; None where it stays as it is."""
        if self.rate is None or self.rate.value is None or self.rule is RateRule.KEEP:
            return None
        factor = size / self.own
        scaled = float(self.rate.value) * (factor if self.rule is RateRule.LINEAR else math.sqrt(factor))
        return written(scaled)

    def command(self, line: Sequence[str], size: int) -> list[str]:
        words = put(line, self.argument, str(size))
        rate = self.rate_at(size)
        return put(words, self.rate, rate) if self.rate is not None and rate is not None else words


def batch_line(
    batch: Argument | Missing, rate: Argument | Missing | None, rule: RateRule, loader_size: int | None
) -> BatchLine:
    """From what was found; one sentence where it is not enough. `loader_size` is what the running script's loader has."""
    if isinstance(batch, Missing):
        raise UsageError("error.no-batch-argument")
    own = whole(batch.value) or loader_size
    if own is None:
        raise UsageError("error.batch-unknown", flag=batch.flag)
    road = Road.CONFIGURATION if batch.source == Road.CONFIGURATION else Road.COMMAND
    if rule is RateRule.KEEP:
        return BatchLine(argument=batch, own=own, road=road)
    if rate is None or isinstance(rate, Missing):
        raise UsageError("error.no-rate-argument", rule=rule.value)
    if rate.value is None or not _number(rate.value):
        raise UsageError("error.rate-unknown", flag=rate.flag)
    return BatchLine(argument=batch, own=own, rate=rate, rule=rule, road=road)


def written(rate: float) -> str:
    """As every reader takes it for a number: PyYAML reads `4e-05` as a word, because it has no point."""
    text = f"{rate:.6g}"
    whole_part, exponent, power = text.partition("e")
    return f"{whole_part}.0e{power}" if exponent and "." not in whole_part else text


def whole(text: str | None) -> int | None:
    return whole_number(text) or None


def _number(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False
