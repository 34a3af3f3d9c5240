"""What a run's table says of `--auto`: what is kept and what it gave, then one line for each knob that was judged."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.measure.auto import AutoDecision, AutoTuning
from flatout.report.terminal import RenderableType, Text

NOT_WORTH_A_LINE = ("skipped",)


def lines(auto: AutoTuning | None, words: Words) -> list[RenderableType]:
    if auto is None:
        return []
    judged = [one for one in auto.decisions if one.verdict not in NOT_WORTH_A_LINE]
    return [Text(summary(auto, words), style="bold"), *(Text(f"  {sentence(one, words)}") for one in judged)]


def summary(auto: AutoTuning, words: Words) -> str:
    knobs = words("run.comma").join(f"{name}={value}" for name, value in auto.knobs.items())
    return words(
        f"auto.{auto.ending}",
        knobs=knobs or words("profile.nothing"),
        gain=_two(auto.gain),
        lower=_two(auto.lower),
        upper=_two(auto.upper),
        baseline=_rate(auto.baseline),
        final=_rate(auto.final),
        seconds=f"{auto.seconds:.0f}",
    )


def sentence(one: AutoDecision, words: Words) -> str:
    params = dict(one.params)
    why = params.get("why")
    if isinstance(why, str) and words.has(f"outcome.{why}"):
        params["why"] = words(f"outcome.{why}", **params)
    return words(f"tune-decision.{one.code}", **params, knob=one.knob, value=one.value)


def _two(value: float | Missing) -> str:
    return "?" if isinstance(value, Missing) else f"{value:.2f}"


def _rate(value: float | Missing) -> str:
    return "?" if isinstance(value, Missing) else f"{value:,.0f}"
