"""The last lines of a run under a profile: what was promised, what was reached, and which part was slower."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.measure.delivered import Delivery
from flatout.measure.model import Summary
from flatout.report import numbers
from flatout.report.terminal import RenderableType, Text
from flatout.report.whole_run import times

UNSAID = ("no-promise",)  # an older profile, or one written by hand
WORTH_NAMING = 0.03  # of the run: parts below it are not compared in the line
MOST_NAMED = 4


def lines(summary: Summary, words: Words) -> list[RenderableType]:
    told = summary.promise
    if told is None:
        return []
    found = []
    if told.code == "not-judged" and told.why not in UNSAID:
        found.append(Text(words(f"promise.{told.why}"), style="bright_black"))
    elif told.code != "not-judged":
        found.append(Text(_sentence(told, summary, words), style="bold green" if told.code == "delivered" else "bold yellow"))
        found.append(Text(f"  {_parts(told, summary, words)}"))
    if told.missing:
        found.append(Text(words("promise.missing", knobs=words("run.comma").join(told.missing)), style="bold yellow"))
    return list(found)


def _sentence(told: Delivery, summary: Summary, words: Words) -> str:
    shown = {
        "promised": _seconds(told.promised_s),
        "wall": numbers.seconds(sum(summary.parts.values())),
        "plain": _seconds(told.plain_s),
        "speedup": times(told.speedup),
        "delivered": times(told.delivered),
    }
    if told.code == "delivered":
        return words("promise.delivered", **shown)
    return words("promise.short", **shown, part=words(f"part.{told.short_of}"), more=numbers.seconds(told.short_s))


def _parts(told: Delivery, summary: Summary, words: Words) -> str:
    """Those that take a share of the run, promised and delivered."""
    spent = sum(summary.parts.values())
    largest = {name: max(summary.parts.get(name, 0.0), told.parts.get(name, 0.0)) for name in summary.parts}
    named = sorted((name for name in largest if largest[name] > WORTH_NAMING * spent), key=lambda name: -largest[name])
    shown = [
        words(
            "promise.part",
            name=words(f"part.{name}"),
            promised=numbers.seconds(told.parts.get(name, 0.0)),
            delivered=numbers.seconds(summary.parts.get(name, 0.0)),
        )
        for name in named[:MOST_NAMED]
    ]
    return words("run.comma").join(shown)


def _seconds(value: float | Missing) -> str:
    return "?" if isinstance(value, Missing) else numbers.seconds(value)
