"""The only file that imports rich: a console that writes to a given stream, with colours only on a terminal."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import NoReturn, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from flatout.base.printable import printable

__all__ = [
    "Console",
    "Group",
    "RenderableType",
    "Segment",
    "Style",
    "Table",
    "Text",
    "bar",
    "cell_len",
    "console_on",
    "hanging",
    "picture",
    "show",
]

NARROW, WIDE = 60, 110


class _Screen(Console):
    """Shows what came from outside without the control characters in it, and lets whoever prints know that nobody reads."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or text.isprintable() or text == "\n":
                yield segment
            else:
                yield Segment(printable(text), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def console_on(stream: TextIO) -> Console:
    """Never wider than reads well; a stream that cannot take our characters gets the nearest it can."""
    width = None if stream.isatty() else WIDE
    console = _Screen(file=stream, highlight=False, soft_wrap=False, width=width, no_color=bool(os.environ.get("NO_COLOR")))
    if console.width > WIDE:
        console.width = WIDE
    return console


def show(stream: TextIO, renderable: RenderableType) -> None:
    """A command that is longer than the terminal is wide stays whole: it is copied, and the terminal wraps what it must."""
    console_on(stream).print(renderable, crop=False)


def picture(renderable: RenderableType, title: str, width: int = 92) -> str:
    """What a terminal would show, as an SVG."""
    console = Console(record=True, width=width, force_terminal=True, color_system="truecolor", file=io.StringIO())
    console.print(renderable)
    return console.export_svg(title=title)


def bar(share: float, width: int) -> str:
    """A bar of eighths: `share` of `width` cells, never empty for a share that is not zero."""
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    full, part = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")


def hanging(mark: str, text: str, style: str = "") -> Table:
    """A paragraph whose further lines begin below its first word, not below its mark."""
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(mark, Text(text, style=style))
    return grid
