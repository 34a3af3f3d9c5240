"""The flags of `flatout tune` about the batch size, and what is said of it at the end."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from flatout.base.errors import UsageError
from flatout.base.records import Missing, Struct, replace
from flatout.base.secrets import hide
from flatout.base.words import Words
from flatout.cli.commandline import option

if TYPE_CHECKING:
    from flatout.launch.own_argument import Argument
    from flatout.launch.protection import Protection
    from flatout.tune.batch.command_line import RateRule
    from flatout.tune.search.questions_and_answers import BatchGoal, BatchStory, Finished

OPTIONS = (
    option("--batch", default="keep", metavar="keep|fit|grow", help="tune-batch"),
    option("--batch-arg", metavar="FLAG", help="tune-batch-arg"),
    option("--lr-rule", metavar="keep|linear|sqrt", help="tune-lr-rule"),
    option("--lr-arg", metavar="FLAG", help="tune-lr-arg"),
)

Kind = TypeVar("Kind", bound=StrEnum)


class Wanted(Struct, kw_only=True):
    """What the user wants of the batch, and the script's arguments for it once they were looked for."""

    goal: BatchGoal
    rule: RateRule
    batch_arg: str | None
    rate_arg: str | None
    batch: Argument | Missing = Missing("not-asked")
    rate: Argument | Missing = Missing("not-asked")


class Keys(Protocol):
    """A configuration whose keys can be changed."""

    source: Path

    def as_argument(self, key: str) -> Argument | Missing: ...


def batch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for add in reversed(OPTIONS):
        command = add(command)
    return command


def wanted(asked: Mapping[str, Any]) -> Wanted | None:
    """None where the batch stays as it is."""
    from flatout.tune.batch.command_line import RateRule
    from flatout.tune.search.questions_and_answers import BatchGoal

    goal = _one_of(BatchGoal, asked["batch"], "error.batch-goal")
    rule = _one_of(RateRule, asked["lr_rule"] or "keep", "error.rate-rule")
    if goal is BatchGoal.KEEP:
        for name in ("batch_arg", "lr_rule", "lr_arg"):
            if asked[name] is not None:
                raise UsageError("error.needs-batch", flag=f"--{name.replace('_', '-')}")
        return None
    return Wanted(goal=goal, rule=rule, batch_arg=asked["batch_arg"], rate_arg=asked["lr_arg"])


def _one_of(kind: type[Kind], name: str, error: str) -> Kind:
    try:
        return kind(name)
    except ValueError as problem:
        raise UsageError(error, value=name) from problem


def look_for_arguments(
    wish: Wanted, line: Sequence[str], protection: Protection, environ: Mapping[str, str], keys: Keys | None = None
) -> None:
    """Before the first child: a script that takes `--help` for a reason to train is held, and ended."""
    from flatout.launch import asked_help, own_argument
    from flatout.launch.own_argument import BATCH, RATE, Searched
    from flatout.tune.batch.command_line import RateRule

    def ask_help() -> str:
        return asked_help.printed(line, environ, protection)

    words = list(line[1:])
    if keys is not None and _in_configuration(wish, words, keys):
        return
    wish.batch = own_argument.find(Searched(words=words, names=BATCH, asked=wish.batch_arg, ask_help=ask_help))
    if isinstance(wish.batch, Missing):
        raise UsageError("error.no-batch-argument")
    if wish.rule is not RateRule.KEEP:
        wish.rate = own_argument.find(Searched(words=words, names=RATE, asked=wish.rate_arg, ask_help=ask_help))
        if isinstance(wish.rate, Missing):
            raise UsageError("error.no-rate-argument", rule=wish.rule.value)


def _in_configuration(wish: Wanted, words: list[str], keys: Keys) -> bool:
    """A key of the configuration comes before an argument that nobody gave: the file is what is to be optimised."""
    from flatout.launch import own_argument
    from flatout.launch.own_argument import BATCH, Searched
    from flatout.tune.batch.command_line import RateRule

    said = own_argument.find(Searched(words=words, names=BATCH))
    if wish.batch_arg is not None or (not isinstance(said, Missing) and said.given):
        return False  # whoever says it on the command line means it, and the file would not be heard
    batch = keys.as_argument("batch_size")
    if isinstance(batch, Missing):
        return False
    if wish.rule is not RateRule.KEEP:
        wish.rate = keys.as_argument("lr")
        if isinstance(wish.rate, Missing):
            raise UsageError("config-error.no-rate", rule=wish.rule.value, path=str(keys.source))
    wish.batch = batch
    return True


def for_the_plan(wish: Wanted | None, ready: Mapping[str, Any], too_large: int | None) -> dict[str, Any]:
    from flatout.tune.batch.command_line import batch_line

    if wish is None:
        return {}
    line = batch_line(wish.batch, wish.rate, wish.rule, ready.get("batch_size"))
    return {"batch": wish.goal, "batch_line": line, "batch_too_large": too_large}


def with_command(end: Finished, line: Sequence[str]) -> Finished:
    """The record with the line that starts the script at its new batch, where it has one."""
    from flatout.launch.own_argument import Argument, put

    story = end.batch
    if story is None or "batch_size" not in end.profile:
        return end if story is None else replace(end, batch=replace(story, size=story.begun or story.own, arguments={}))
    words = list(line)
    for flag, value in story.arguments.items():
        words = put(words, Argument(flag=flag, names=(flag,), value=None), value)
    return replace(end, batch=replace(story, command=hide(words)))


def sentences(story: BatchStory | None, words: Words) -> list[str]:
    """What was found about the batch, each figure with its limit."""
    if story is None or (story.size == (story.begun or story.own) and not story.command):
        return []
    said = [_limits(story, words)] if story.proved is not None else []
    if story.rate_after:
        names = {"flag": story.rate_flag, "before": story.rate_before, "after": story.rate_after}
        said.append(words("tune.batch-rate", rule=story.rate_rule, **names))
    else:
        said.append(words("tune.batch-rate-keep"))
    learned = story.time_to_loss
    if learned is not None and learned.ratio is not None:
        figures = {"times": learned.ratio, "lower": learned.lower, "upper": learned.upper}
        shown = {name: "?" if value is None else f"{value:.2f}" for name, value in figures.items()}
        seconds = {"plain": f"{learned.plain_s or 0:.1f} s", "changed": f"{learned.changed_s or 0:.1f} s"}
        said.append(words("tune.batch-learned", pairs=learned.pairs, **shown, **seconds))
    if story.command:
        said.append(words("tune.batch-command", command=shlex.join(story.command[1:])))
    return said


def _limits(story: BatchStory, words: Words) -> str:
    proved, limit = story.proved, story.memory_limit
    assert proved is not None
    return words(
        "tune.batch-limits",
        size=story.size,
        own=story.own,
        peak=_gib(proved.peak) if isinstance(proved.peak, int) else "?",
        limit=_gib(limit) if limit is not None else "?",
        headroom=f"{100 * story.headroom:.0f} %",
        epoch=words("tune.batch-epoch-seen" if story.epoch_seen else "tune.batch-epoch-not-seen"),
    )


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"
