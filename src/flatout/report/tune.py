"""Messages of a search: one line per decision, the end, the upper limits."""

from __future__ import annotations

from collections.abc import Sequence

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.report import numbers
from flatout.report.terminal import Group, RenderableType, Text
from flatout.tune.execution.permanent_edits import Edit
from flatout.tune.search.questions_and_answers import Decision, Ending, Finished, Progress, Reached, Verdict
from flatout.tune.search.run_length import RunLength
from flatout.tune.search.time_budget import Budget

WIDEST = 2.0  # upper to lower bound: wider, a share of a ceiling says nothing
SAYS_NOTHING = ("on", "more")  # values
COLOURS = {Verdict.KEPT: "green", Verdict.FAILED: "red", Verdict.NOT_APPLIED: "yellow", Verdict.UNKNOWN: "yellow"}


def sentence(decision: Decision, words: Words) -> str:
    """A reason of the agent's own is said in words where the catalogue has them."""
    params = dict(decision.params)
    why = params.get("why")
    if isinstance(why, str) and words.has(f"outcome.{why}"):
        params["why"] = words(f"outcome.{why}", **params)
    return words(f"tune-decision.{decision.code}", **params, knob=decision.knob, value=decision.value)


def line(decision: Decision, words: Words) -> Text:
    return Text(f"  {sentence(decision, words)}", style=COLOURS.get(decision.verdict, "bright_black"))


def run_length(length: RunLength, words: Words) -> str:
    """What is taken for the length of the user's run, and whence."""
    told = {"source": words(f"run-length.{length.source}"), "steps": numbers.count(length.steps or 0)}
    epochs = numbers.epochs(length.epochs) if length.epochs is not None else None
    if epochs is None:
        return words("run-length.steps", **told)
    return words("run-length.epochs" if length.steps else "run-length.epochs-alone", epochs=epochs, **told)


def budget(granted: Budget, words: Words, enough: str) -> str:
    """`enough`: the --budget that has room for confirming, where this one has none."""
    times = {name: duration(getattr(granted, f"{name}_s")) for name in ("search", "confirm", "whole")}
    code = "least" if granted.is_least else granted.code
    return words(f"tune-budget.{code if granted.confirm_s else 'unconfirmed'}", **times, enough=enough)


def not_tried(decisions: Sequence[Decision], enough: str, words: Words) -> str:
    """All that there was no time for, in one line; why, and what each would have needed, stands in the record."""
    names = [one.knob if one.value in SAYS_NOTHING else f"{one.knob} {one.value}" for one in decisions]
    return words("tune.not-tried", knobs=words("run.comma").join(names), budget=enough)


def progress(now: Progress, words: Words) -> str:
    trying = f" ({', '.join(now.trying)})" if now.trying else ""
    doing = words(f"tune.stage-{now.stage}") + trying
    return words("tune.progress", done=now.segments_done, doing=doing, left=duration(now.left_s))


def ending(end: Finished, words: Words, log: str) -> RenderableType:
    lines: list[RenderableType] = [Text(_outcome(end, words, log), style="bold")]
    unclear = [one for one in end.decisions if one.verdict is Verdict.UNKNOWN and one.code != "no-time"]
    open_still = [f"{one.knob} {one.value}" for one in unclear]
    if open_still and end.ending in (Ending.TUNED, Ending.NOTHING_SHOWN):
        lines.append(Text(words("tune.more-time", knobs=", ".join(open_still))))
    if isinstance(end.ceilings.with_copy, float) and isinstance(end.ceilings.without_copy, float):
        ceilings = {"with_copy": rate(end.ceilings.with_copy), "without_copy": rate(end.ceilings.without_copy)}
        lines.append(Text(words("tune.ceilings", **ceilings)))
    elif isinstance(end.ceilings.with_copy, float):
        lines.append(Text(words("tune.ceiling", with_copy=rate(end.ceilings.with_copy))))
    lines += _cards(end, words)
    if isinstance(end.ceilings.supply, float):
        lines.append(Text(words("tune.supply", supply=rate(end.ceilings.supply))))
    if end.reached is not None and _tells(end.reached):
        told = {name: ratio(getattr(end.reached, name)) for name in ("ratio", "lower", "upper")}
        lines.append(Text(words(f"tune.reached-{end.reached.ceiling.value}", **told)))
    return Group(*lines)


def _tells(reached: Reached) -> bool:
    lower, upper = reached.lower, reached.upper
    return isinstance(lower, float) and isinstance(upper, float) and upper <= WIDEST * lower


def _cards(end: Finished, words: Words) -> list[RenderableType]:
    """What the driver said of them, plain and tuned."""
    lines: list[RenderableType] = []
    working = (end.working_before, end.working_after)
    if isinstance(working[0], float) and isinstance(working[1], float):
        lines.append(Text(words("tune.working", before=f"{working[0]:.0%}", after=f"{working[1]:.0%}")))
    watts = [_figure(value) for value in (end.power_before, end.power_after)]
    rates = [_figure(value) for value in (end.baseline, end.final)]
    if all(watts) and all(rates):
        joules = [f"{drawn / speed:.3g}" for drawn, speed in zip(watts, rates, strict=True)]
        told = {"before": f"{watts[0]:.0f}", "after": f"{watts[1]:.0f}", "joules_before": joules[0], "joules_after": joules[1]}
        lines.append(Text(words("tune.power", **told)))
    return lines


def permanent(found: Sequence[Edit], words: Words) -> Text:
    """The edits that would do the same in the user's own code."""
    told = [words("permanent.heading")]
    for edit in found:
        place = f"{edit.site}: " if edit.site else ""
        told.append(f"  {place}{words(f'permanent.{edit.code}', edit=edit.edit)}")
    return Text("\n".join(told))


def _outcome(end: Finished, words: Words, log: str) -> str:
    uncompared = end.ending is Ending.TUNED and isinstance(end.speedup, Missing)
    return words(
        f"tune.ended-{end.ending.value}{'-uncompared' if uncompared else ''}",
        baseline=rate(end.baseline),
        final=rate(end.final),
        speedup=ratio(end.speedup),
        lower=ratio(end.lower),
        upper=ratio(end.upper),
        batch=_batch(end),
        code=end.params.get("status", end.code),
        log=log,
    )


def _batch(end: Finished) -> int:
    """The smallest that ran out of memory where none holds, else the one that runs."""
    if end.batch is None:
        return 0
    return min(end.batch.died, default=end.batch.size) if end.ending is Ending.NONE_HOLDS else end.batch.size


def _figure(value: float | Missing) -> float:
    """Nought where there is none."""
    return value if isinstance(value, float) else 0.0


def rate(value: float | Missing) -> str:
    if isinstance(value, Missing):
        return "?"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def ratio(value: float | Missing) -> str:
    return "?" if isinstance(value, Missing) else f"{value:.2f}"


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
