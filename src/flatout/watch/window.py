"""The one door to textual: the window that shows rows, and hands on keys, clicks and time. What is shown is made elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from flatout.base.records import Missing, replace
from flatout.base.words import LANGUAGES, Words
from flatout.machine import host
from flatout.watch.view import dialogs, page
from flatout.watch.view.picture import Picture
from flatout.watch.view.rows import Piece, Rows, at
from flatout.watch.view.scene import Scene
from flatout.watch.view.styles import Styles
from flatout.watch.view.themes import DARK, THEMES, after
from flatout.watch.view.traces import Traces

DIALOG_WIDTH = 76
SEEK_S = 30.0


class Source(Protocol):
    traces: Traces
    every_s: float
    replayed: bool
    pace: float

    def turn(self) -> Picture: ...

    def seek(self, seconds: float) -> None: ...

    def hold(self, paused: bool) -> None: ...


class Rowed:
    """Rows that can be pointed at, in a widget that scrolls or one that does not."""

    rows: Rows
    tooltip: Any

    def piece_at(self, x: int, y: int) -> Piece | None:
        return at(self.rows[y], x) if 0 <= y < len(self.rows) else None


class Bar(Widget, Rowed):
    def __init__(self, styles: Callable[[], Styles], **settings: Any) -> None:
        super().__init__(**settings)
        self.rows: Rows = []
        self._styles = styles

    def render_line(self, y: int) -> Strip:
        row = self.rows[y] if y < len(self.rows) else []
        return Strip(self._styles().segments(row, self.size.width), self.size.width)

    def show(self, rows: Rows) -> None:
        self.rows = rows
        self.refresh()


class Scrolled(ScrollView, Rowed, can_focus=True):
    def __init__(self, styles: Callable[[], Styles], **settings: Any) -> None:
        super().__init__(**settings)
        self.rows: Rows = []
        self._styles = styles

    def render_line(self, y: int) -> Strip:
        place = y + self.scroll_offset.y
        row = self.rows[place] if place < len(self.rows) else []
        return Strip(self._styles().segments(row, self.size.width), self.size.width)

    def show(self, rows: Rows) -> None:
        """Rows that are as they were are not sent again: over ssh that is most of the traffic."""
        before, self.rows = self.rows, rows
        self.virtual_size = Size(max(1, self.size.width), len(rows))
        if len(before) != len(rows) or before[:1] == []:
            self.refresh()
            return
        first, width = self.scroll_offset.y, self.size.width
        changed = [Region(0, y - first, width, 1) for y in range(len(rows)) if rows[y] != before[y]]
        if changed:
            self.refresh(*changed)


class Dialog(ModalScreen[str]):
    """Rows in front of the window. Ends with the key that was pressed, or with what was clicked."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "leave", show=False)]

    def __init__(self, make: Callable[[int], Rows], styles: Callable[[], Styles], keys: str = "") -> None:
        super().__init__()
        self._make, self._styles, self._keys = make, styles, keys

    def compose(self) -> ComposeResult:
        yield Scrolled(self._styles, id="dialog")

    def on_mount(self) -> None:
        self._draw(self.app.size.width, self.app.size.height)

    def on_resize(self, event: events.Resize) -> None:
        self._draw(event.size.width, event.size.height)

    def _draw(self, columns: int, lines: int) -> None:
        shown = self.query_one("#dialog", Scrolled)
        width = max(20, min(DIALOG_WIDTH, columns - 4))
        rows = self._make(width)
        high = min(len(rows), max(3, lines - 2))
        shown.styles.width, shown.styles.height = width + (len(rows) > high), high  # the scroll bar takes a column
        shown.show(rows)
        shown.virtual_size = Size(width, len(rows))

    def on_key(self, event: events.Key) -> None:
        if event.character and event.character in self._keys:
            event.stop()
            self.dismiss(f"key:{event.character}")

    def on_click(self, event: events.Click) -> None:
        shown = self.query_one("#dialog", Scrolled)
        where = event.get_content_offset(shown)
        piece = None if where is None else shown.piece_at(where.x, where.y + shown.scroll_offset.y)
        if piece is not None and piece.action:
            self.dismiss(piece.action)
        elif where is None:
            self.dismiss("")

    def action_leave(self) -> None:
        self.dismiss("")


class Window(App[int]):
    """Ends when it is quit, when `until` gives a code, or after `length` seconds."""

    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    Bar { height: 1; }
    Scrolled { scrollbar-size-vertical: 1; overflow-x: hidden; overflow-y: auto; scrollbar-color: #5f7080;
      scrollbar-color-hover: #8496a6; scrollbar-color-active: #8496a6; scrollbar-background: transparent;
      scrollbar-background-hover: transparent; scrollbar-background-active: transparent; }
    #body { height: 1fr; }
    Dialog { align: center middle; background: $background 50%; }
    Tooltip { max-width: 60; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c,ctrl+q", "leave", priority=True, show=False),
        Binding("question_mark,h,f1", "help", show=False),
        Binding("p,space", "hold", show=False),
        Binding("plus,equals_sign", "length(1)", show=False),
        Binding("minus", "length(-1)", show=False),
        Binding("up", "card(-1)", show=False, priority=True),
        Binding("down", "card(1)", show=False, priority=True),
        Binding("left", "seek(-1)", show=False, priority=True),
        Binding("right", "seek(1)", show=False, priority=True),
        Binding("r,enter", "reasons", show=False),
        Binding("k", "choose", show=False),
        Binding("l", "language", show=False),
        Binding("t", "theme", show=False),
    ]

    def __init__(
        self,
        source: Source,
        words: Words,
        length: float | None = None,
        until: Callable[[], int | None] = lambda: None,
        host_name: str = "",
    ) -> None:
        super().__init__()
        self._source, self._until, self._length = source, until, length
        self._mono = bool(os.environ.get("NO_COLOR"))
        self._look = DARK
        self._made = Styles(DARK, self._mono)
        self.scene = Scene(
            picture=Picture(t=time.time()),
            traces=source.traces,
            words=words,
            mono=self._mono,
            replayed=source.replayed,
            pace=source.pace,
            host_name=host_name,
        )
        self._drawn = False
        self.faults = 0

    def compose(self) -> ComposeResult:
        yield Bar(lambda: self._made, id="top")
        yield Scrolled(lambda: self._made, id="body")
        yield Bar(lambda: self._made, id="bottom")

    def on_mount(self) -> None:
        self._dress()
        self.query_one("#body", Scrolled).focus()
        self.run_worker(self._look_again_and_again(), exit_on_error=False)

    # -- time ----------------------------------------------------------------------------------------------------------------

    async def _look_again_and_again(self) -> None:
        began = time.monotonic()
        while True:
            await self.look()
            passed = time.monotonic() - began
            code = self._until()
            if code is not None or (self._length is not None and passed >= self._length):
                self.exit(code)
                return
            rest = self._source.every_s - passed % self._source.every_s
            await asyncio.sleep(rest if self._length is None else min(rest, max(0.01, self._length - passed)))

    async def look(self) -> None:
        """One turn, in a thread: a driver that takes its time must not make the keys wait."""
        try:
            picture = await asyncio.to_thread(self._source.turn)
        except Exception as error:  # noqa: BLE001 (a fault of ours is said once, and what is watched all day goes on)
            self.faults += 1
            if self.faults == 1:
                said = self.scene.words("screen.fault", detail=f"{type(error).__name__}: {error}")
                self.notify(said, severity="warning", timeout=20, markup=False)
            return
        if not self.scene.paused or self._source.replayed or not self._drawn:
            self.scene = replace(self.scene, picture=picture, pace=self._source.pace)
            self._drawn = True
            self.draw()

    def draw(self) -> None:
        """A panel that cannot be drawn must not end what is watched."""
        width, height = self.size.width, self.size.height
        if width < 1 or height < 3:
            return
        body = self._widget("#body", Scrolled)
        inner = width
        rows = page.body(self.scene, inner, height - 2)
        if len(rows) > height - 2:  # the scroll bar takes a column
            inner = width - 1
            rows = page.body(self.scene, inner, height - 2)
        body.show(rows)
        self._widget("#top", Bar).show([page.top(self.scene, width)])
        self._widget("#bottom", Bar).show([page.bottom(self.scene, width)])

    def _widget(self, name: str, kind: type[Any]) -> Any:
        return self.screen_stack[0].query_one(name, kind)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.draw)

    def _dress(self) -> None:
        self._made = Styles(self._look, self._mono)
        self.theme = "textual-light" if self._look.name == "light" else "textual-dark"
        for name in ("#top", "#body", "#bottom"):
            if not self._mono:
                self._widget(name, Widget).styles.background = self._look.ground
        self.draw()
        self._widget("#body", Widget).refresh()

    # -- keys and mouse ------------------------------------------------------------------------------------------------------

    def on_mouse_move(self, event: events.MouseMove) -> None:
        widget, piece = self._pointed(event)
        if widget is not None:
            tip = piece.tip if piece is not None and piece.tip else None
            if widget.tooltip != tip:
                widget.tooltip = tip

    def on_click(self, event: events.Click) -> None:
        _, piece = self._pointed(event)
        if piece is not None and piece.action:
            self.act(piece.action)

    def _pointed(self, event: events.MouseEvent) -> tuple[Any, Piece | None]:
        for name in ("#top", "#body", "#bottom"):
            widget = self._widget(name, Widget)  # a `Rowed` one
            where = event.get_content_offset(widget) if self.screen is self.screen_stack[0] else None
            if where is not None:
                return widget, widget.piece_at(where.x, where.y + round(widget.scroll_offset.y))
        return None, None

    def act(self, action: str) -> None:
        """What a click on a piece means."""
        kind, _, what = action.partition(":")
        if kind == "card":
            self._choose_card(int(what))
        elif kind == "reasons":
            self.action_reasons()
        elif kind == "kill":
            self._ask(int(what))
        elif kind == "key":
            presses = {"q": self.action_leave, "?": self.action_help, "p": self.action_hold, "r": self.action_reasons}
            presses |= {"k": self.action_choose, "l": self.action_language, "t": self.action_theme}
            presses |= {"+": lambda: self.action_length(1), "↑": lambda: self.action_card(1)}
            if what in presses:
                presses[what]()

    def action_leave(self) -> None:
        if isinstance(self.screen, Dialog):
            self.screen.dismiss("")
        else:
            self.exit(None)

    def action_hold(self) -> None:
        self.scene = replace(self.scene, paused=not self.scene.paused)
        self._source.hold(self.scene.paused)
        self.draw()

    def action_length(self, by: int) -> None:
        self.scene = replace(self.scene, length_s=page.longer(self.scene.length_s, by))
        self.draw()

    def action_card(self, by: int) -> None:
        if isinstance(self.screen, Dialog):
            self.screen.query_one("#dialog", Scrolled).scroll_relative(y=by, animate=False)
        elif len(self.scene.picture.cards) > 1:
            self._choose_card((self.scene.selected + by) % len(self.scene.picture.cards))
        else:
            self._widget("#body", Scrolled).scroll_relative(y=by, animate=False)

    def _choose_card(self, place: int) -> None:
        self.scene = replace(self.scene, selected=place)
        self.draw()

    def action_seek(self, by: int) -> None:
        self._source.seek(by * SEEK_S)

    def action_language(self) -> None:
        place = LANGUAGES.index(self.scene.words.language)
        self.scene = replace(self.scene, words=Words(LANGUAGES[(place + 1) % len(LANGUAGES)]))
        self.draw()

    def action_theme(self) -> None:
        self._look = after(self._look) if self._look in THEMES else DARK
        self._dress()

    def action_help(self) -> None:
        self._open(lambda width: dialogs.help_rows(self.scene, width))

    def action_reasons(self) -> None:
        self._open(lambda width: dialogs.reasons(self.scene, width))

    def action_choose(self) -> None:
        processes = self.scene.picture.processes[: dialogs.MOST_PROCESSES]
        keys = "".join(str(place) for place, one in enumerate(processes, 1) if isinstance(one.pid, int))

        def chosen(action: str | None) -> None:
            if action and action.startswith("key:"):
                pid = processes[int(action[4:]) - 1].pid
                action = f"kill:{pid}"
            if action:
                self.act(action)

        self._open(lambda width: dialogs.to_choose(self.scene, width), keys, chosen)

    def _ask(self, pid: int) -> None:
        """Nothing is ended without a second key, and only what the question has named."""
        known = host.identity(pid)
        who: dialogs.Stranger | Missing = known if isinstance(known, Missing) else dialogs.Stranger(pid=pid, **known)

        def answered(action: str | None) -> None:
            if isinstance(who, Missing) or action not in ("key:y", "key:x"):
                return
            number = signal.SIGTERM if action == "key:y" else getattr(signal, "SIGKILL", signal.SIGTERM)
            told = host.end(pid, who.started, number)
            words = self.scene.words
            said = words("screen.told-to-end", pid=pid)
            if told is not None:
                said = words("screen.cannot-end", pid=pid, why=words(f"missing.{told.reason}"))
            self.notify(said, severity="information" if told is None else "warning", markup=False)

        self._open(lambda width: dialogs.question(self.scene, who, pid, width), "yxn", answered)

    def _open(self, make: Callable[[int], Rows], keys: str = "", done: Callable[[str | None], None] | None = None) -> None:
        if not isinstance(self.screen, Dialog):
            self.push_screen(
                Dialog(make, lambda: self._made, keys), done or (lambda action: self.act(action) if action else None)
            )
