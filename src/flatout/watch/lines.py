"""A watch session as plain lines for pipes, logs and simple terminals: records in, text out."""

from __future__ import annotations

import time
from collections.abc import Callable

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.machine.telemetry import CardSample, HostSample
from flatout.report.load import GOOD
from flatout.report.numbers import count, gibibytes, percent, seconds
from flatout.watch.alerts import Alert
from flatout.watch.causes import Cause, Slow
from flatout.watch.follow import Training
from flatout.watch.means import CardMeans, Mean
from flatout.watch.session import Look, Watched

NOTHING = "–"
REASONS = ("utilisation", "memory_used_bytes", "temperature_c", "power_w", "sm_clock_mhz", "fan_percent")


def clock_time(t: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(t))


def now(look: Look, words: Words) -> list[str]:
    """One line a card, or the host's where there is none, and one of the training."""
    sample = look.sample
    at = clock_time(sample.t)
    cards = () if isinstance(sample.cards, Missing) else sample.cards
    found = [f"{at}  {_card(card, words)}" for card in cards] or [f"{at}  {_host(sample.host, words)}"]
    if look.training is not None and look.training.running:
        found.append(f"{at}  {_training(look.training, words)}")
    return found


def once(look: Look, words: Words) -> list[str]:
    """With the host, and why a figure is not there."""
    sample = look.sample
    found = [] if isinstance(sample.cards, Missing) else [_card(card, words) for card in sample.cards]
    if isinstance(sample.cards, Missing):
        found.append(words("watch.no-cards", why=words(f"missing.{sample.cards.reason}")))
    found.append(_host(sample.host, words))
    if look.training is not None and look.training.running:
        found.append(_training(look.training, words))
    else:
        found.append(words("watch.no-run"))
    for card in () if isinstance(sample.cards, Missing) else sample.cards:
        found += [
            words("watch.why", index=card.index, figure=words(f"watch.figure.{name}"), why=words(f"missing.{value.reason}"))
            for name in REASONS
            if isinstance(value := getattr(card, name), Missing)
        ]
    return [*found, *(alert(one, words) for one in look.alerts), *(words(f"note.{n.code}", **n.params) for n in look.notes)]


def summary(watched: Watched, words: Words) -> list[str]:
    means = watched.means
    time_s = seconds(watched.ended - watched.started)
    if not means.looks:  # a replay of what nobody watched
        return [words("watch.no-looks", time=time_s), *_of_the_run(watched, words)]
    found = [words("watch.over", time=time_s, looks=means.looks)]
    if means.no_cards is not None:
        found.append(words("watch.no-cards", why=words(f"missing.{means.no_cards.reason}")))
    for card in means.cards:
        found += _means(card, words)
        utilisation = card.figures.get("utilisation")
        if watched.training is None and utilisation is not None and utilisation.looks:
            # Where a training is watched, its verdict says more.
            found.append(words("load.busy" if utilisation.mean >= GOOD else "load.idle"))
    host = means.host
    found.append(
        words(
            "watch.mean-host",
            cpu=_mean(host.get("cpu_percent"), _percent),
            cpu_peak=_peak(host.get("cpu_percent"), _percent),
            memory_peak=_peak(host.get("memory_used_bytes"), gibibytes),
        )
    )
    return [*found, *_of_the_run(watched, words)]


def _of_the_run(watched: Watched, words: Words) -> list[str]:
    found = []
    if watched.training is not None:
        found.append(_training(watched.training, words))
        found += [line for slow in watched.slow for line in stretch(slow, words)] or [words("watch.no-slow")]
    found += [alert(one, words) for one in watched.alerts]
    return [*found, *(words(f"note.{note.code}", **note.params) for note in watched.notes)]


def stretch(slow: Slow, words: Words) -> list[str]:
    """Between which moments, how much longer each step took, and why."""
    first = words(
        "watch.slow",
        start=clock_time(slow.start),
        end=clock_time(slow.end),
        slower=percent(slow.slower),
        step=seconds(slow.step_s),
        usual=seconds(slow.usual_step_s),
    )
    if not slow.causes:
        return [first, f"  {words('watch.cause-not-seen')}"]
    found = [first, *(f"  {_cause(cause, words)}" for cause in slow.causes)]
    if slow.unseen >= 0.1:
        found.append(f"  {words('watch.rest-not-seen', share=percent(slow.unseen))}")
    return found


def _cause(cause: Cause, words: Words) -> str:
    page = "" if cause.code is None else f" (flatout explain {cause.code})"
    unsure = "" if cause.certain else words("watch.not-told-apart")
    return words("watch.cause-line", share=percent(cause.share), cause=words(f"watch.cause.{cause.name}")) + unsure + page


def alert(one: Alert, words: Words) -> str:
    shown = {name: _shown(name, value) for name, value in one.evidence.items() if name != "how"}
    how = one.evidence.get("how")
    if how is not None:
        shown["how"] = words(f"watch.ended.{how}")
    return words(f"watch.alert.{one.code}", about=one.about, **shown)


def _shown(name: str, value: object) -> object:
    if not isinstance(value, int | float):
        return value
    if name in ("seconds", "usual_step_s", "seconds_left"):
        return seconds(float(value))
    return gibibytes(float(value)) if "bytes" in name else value


def _card(card: CardSample, words: Words) -> str:
    return words(
        "watch.card",
        index=card.index,
        utilisation=_of(card.utilisation, _percent),
        used=_of(card.memory_used_bytes, gibibytes),
        total=_of(card.memory_total_bytes, gibibytes),
        temperature=_of(card.temperature_c, _whole),
        power=_of(card.power_w, _whole),
        limit=_of(card.power_limit_w, _whole),
        clock=_of(card.sm_clock_mhz, _whole),
    )


def _host(host: HostSample, words: Words) -> str:
    return words(
        "watch.host",
        cpu=_of(host.cpu_percent, _percent),
        used=_of(host.memory_used_bytes, gibibytes),
        total=_of(host.memory_total_bytes, gibibytes),
    )


def _training(training: Training, words: Words) -> str:
    loss = f"{training.losses[-1][1]:.4g}" if training.losses else NOTHING
    parts = [
        words(
            "watch.training",
            steps=count(training.steps),
            step=_of(training.step_s, seconds),
            rate=_of(training.samples_per_s, count),
            loss=loss,
        )
    ]
    if not isinstance(training.epoch, Missing) and training.epoch:
        key = "watch.turns" if isinstance(training.epochs, Missing) else "watch.epoch"
        epochs = _of(training.epochs, lambda value: f"{value:g}")
        parts.append(words(key, epoch=f"{training.epoch:.1f}", epochs=epochs))
    if not isinstance(training.left_s, Missing) and training.running:
        parts.append(words("watch.left", time=seconds(training.left_s)))
    return words("watch.comma").join(parts)


def _means(card: CardMeans, words: Words) -> list[str]:
    figures = card.figures
    name = card.name if isinstance(card.name, str) else NOTHING
    found = [
        words("watch.mean-card", index=card.index, name=name, looks=card.looks),
        *(
            words(f"watch.mean.{figure}", mean=_mean(figures.get(figure), shown), peak=_peak(figures.get(figure), shown))
            for figure, shown in (
                ("utilisation", _percent),
                ("memory_used_bytes", gibibytes),
                ("temperature_c", _whole),
                ("power_w", _whole),
                ("sm_clock_mhz", _whole),
            )
        ),
    ]
    held = {reason: looks for reason, looks in card.held.items() if looks >= 0.01 * card.looks}
    if held:
        shown = ", ".join(f"{reason} {percent(looks / card.looks)}" for reason, looks in sorted(held.items()))
        found.append(words("watch.mean-held", reasons=shown))
    return found


def _mean(mean: Mean | None, shown: Callable[[float], str]) -> str:
    return NOTHING if mean is None or not mean.looks else shown(mean.mean)


def _peak(mean: Mean | None, shown: Callable[[float], str]) -> str:
    return NOTHING if mean is None or not mean.looks else shown(mean.high)


def _of(value: float | Missing, shown: Callable[[float], str]) -> str:
    return NOTHING if isinstance(value, Missing) else shown(value)


def _percent(value: float) -> str:
    return f"{value:.0f} %"


def _whole(value: float) -> str:
    return f"{value:.0f}"
