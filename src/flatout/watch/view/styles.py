"""Styles of pieces as rich has them: pure, but for the door to rich."""

from __future__ import annotations

from flatout.report.terminal import Segment, Style
from flatout.watch.view.rows import Row, fit
from flatout.watch.view.themes import Theme


class Styles:
    """Styles of pieces as rich has them, for one theme."""

    def __init__(self, theme: Theme, mono: bool) -> None:
        self.ground = Style() if mono else Style(color=theme.text, bgcolor=theme.ground)
        self._theme, self._mono = theme, mono
        self._made: dict[str, Style] = {}

    def of(self, style: str) -> Style:
        made = self._made.get(style)
        if made is None:
            look = self._theme.look(style)
            if self._mono:
                made = Style(bold=look.bold, reverse=look.bg is not None, dim=style in ("dim", "empty", "frame"))
            else:
                made = self.ground + Style(color=look.fg, bgcolor=look.bg, bold=look.bold)
            self._made[style] = made
        return made

    def segments(self, row: Row, width: int) -> list[Segment]:
        return [Segment(one.text, self.of(one.style)) for one in fit(row, width)]
