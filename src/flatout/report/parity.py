"""What the parity gate found, in sentences and as a picture of the loss curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from statistics import mean

from flatout.base.words import Words
from flatout.measure.one_batch import OneBatch, Training
from flatout.measure.parity import Parity, Verdict

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 40
PLAIN, TUNED, LIMIT = "#b6bcc6", "#2563eb", "#dc2626"
MARKS = 5  # on each axis
MOST_POINTS = 400  # of a curve
AT_CHANCE = 1.25  # times the largest loss of the plain training: what runs away is cut off there, and seen to leave


def sentences(parity: Parity, failed: Parity | None, taken: Sequence[str], aside: Sequence[str], words: Words) -> list[str]:
    """`failed`: the verdict on what was `taken` out of the profile; `aside` are those that only draw otherwise."""
    told = []
    if failed is not None and taken:
        told.append(words("parity.taken-out", knobs=", ".join(taken), why=_why(failed, words)))
    told.append(_verdict(parity, words))
    batch = parity.batch
    if batch is not None and batch.ok:
        told.append(words("parity.same-batch", **_figures(batch)))
    elif batch is not None and batch.ok is None and parity.pairs:
        told.append(words(f"parity.{batch.code}"))
    if aside and parity.pairs:
        told.append(words("parity.aside", knobs=", ".join(aside)))
    return told


def _verdict(parity: Parity, words: Words) -> str:
    if _is_of_the_batch(parity):
        return words("parity.other-batch", why=_why(parity, words))
    key = "same-numbers" if parity.code == "same-numbers" else parity.verdict
    return words(f"parity.{key}", code=parity.code, pairs=parity.pairs, steps=parity.steps, **_numbers(parity))


def _why(parity: Parity, words: Words) -> str:
    batch = parity.batch
    if batch is not None and _is_of_the_batch(parity):
        return words("parity.why-batch", what=words(f"parity.{batch.code}"), **_figures(batch))
    return words("parity.why-curves", code=parity.code, **_numbers(parity))


def _is_of_the_batch(parity: Parity) -> bool:
    return parity.verdict is Verdict.FAIL and parity.batch is not None and parity.code == parity.batch.code


def _numbers(parity: Parity) -> dict[str, str]:
    figures = {"difference": parity.difference, "upper": parity.upper, "margin": parity.margin}
    return {name: "?" if value is None else f"{value:.4g}" for name, value in figures.items()}


def _figures(batch: OneBatch) -> dict[str, str]:
    figures = {"loss": batch.loss, "length": batch.length, "cosine": batch.cosine}
    return {name: "?" if value is None else f"{value:.4g}" for name, value in figures.items()}


def picture(pairs: Sequence[tuple[Training, Training]], parity: Parity, words: Words) -> str:
    """One SVG that needs nothing else: every curve thin, the means of each side thick, and what would be too much."""
    plain, tuned = ([pair[side].losses for pair in pairs] for side in (0, 1))
    level = [mean(losses[len(losses) // 2 :]) for losses in plain]
    limit = mean(level) + parity.margin if parity.margin is not None else None
    scale = _Scale([*plain, *tuned], plain, limit)
    parts = [_frame(scale, parity, words)]
    for curves, colour, width in ((plain, PLAIN, 5.0), (tuned, TUNED, 2.0)):  # one may lie on the other: both are seen
        parts += [_line(scale, losses, colour, width / 2.5, 0.45) for losses in curves]
        parts.append(_line(scale, _mean_of(curves), colour, width, 1.0))
    if limit is not None:
        parts.append(_limit(scale, limit))
    parts.append(_legend(words))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>', *parts, "</svg>", ""])


class _Scale:
    """Losses to places on the sheet."""

    def __init__(self, curves: Sequence[Sequence[float]], plain: Sequence[Sequence[float]], limit: float | None) -> None:
        known = [loss for losses in curves for loss in losses if math.isfinite(loss)] or [0.0]
        highest = [loss for losses in plain for loss in losses if math.isfinite(loss)] or known
        self.low = min(known) if limit is None else min(min(known), limit)
        highest_shown = self.low + AT_CHANCE * (max(highest) - self.low)
        self.high = max(min(max(known), highest_shown), limit or self.low, self.low + max(1e-9, 1e-6 * abs(self.low)))
        self.steps = max(2, max((len(losses) for losses in curves), default=2))

    def x(self, step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / (self.steps - 1)

    def y(self, loss: float) -> float:
        share = (min(max(loss, self.low), self.high) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def _mean_of(curves: Sequence[Sequence[float]]) -> list[float]:
    return [mean(column) for column in zip(*curves, strict=False)]


def _line(scale: _Scale, losses: Sequence[float], colour: str, width: float, opacity: float) -> str:
    every = max(1, len(losses) // MOST_POINTS)
    points = [(scale.x(step), scale.y(loss)) for step, loss in enumerate(losses) if step % every == 0 and math.isfinite(loss)]
    told = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{told}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-opacity="{opacity}"/>'


def _limit(scale: _Scale, limit: float) -> str:
    """Over the later half, which is what is compared."""
    begin, end, y = scale.x((scale.steps - 1) / 2), scale.x(scale.steps - 1), scale.y(limit)
    dashes = f'stroke="{LIMIT}" stroke-width="1.5" stroke-dasharray="6 4"'
    return f'<line x1="{begin:.1f}" y1="{y:.1f}" x2="{end:.1f}" y2="{y:.1f}" {dashes}/>'


def _frame(scale: _Scale, parity: Parity, words: Words) -> str:
    title = words("parity.title", verdict=words(f"parity.verdict-{parity.verdict}"))
    parts = [f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>']
    for mark in range(MARKS):
        share = mark / (MARKS - 1)
        loss, step = scale.low + share * (scale.high - scale.low), round(share * (scale.steps - 1))
        x, y = scale.x(step), scale.y(loss)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{loss:.4g}</text>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step + 1}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(words("parity.steps"))}</text>')
    return "\n".join(parts)


def _legend(words: Words) -> str:
    parts, x = [], WIDTH - RIGHT - 300
    for name, colour in (("plain", PLAIN), ("tuned", TUNED), ("worse", LIMIT)):
        parts.append(f'<rect x="{x}" y="13" width="14" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 20}" y="20">{escape(words(f"parity.{name}"))}</text>')
        x += 100
    return "\n".join(parts)
