"""The whole window as rows, for any number of cards, columns and rows: pure."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.report.numbers import seconds
from flatout.watch import lines
from flatout.watch.lines import NOTHING
from flatout.watch.view import plots, run_panels
from flatout.watch.view.card_panels import PANEL, cards
from flatout.watch.view.finding_panel import findings
from flatout.watch.view.rows import Piece, Row, Rows, beside, box, fit, spread, wrapped
from flatout.watch.view.scene import LENGTHS_S, SHOWN, Scene, blank, outside, reason
from flatout.watch.view.traces import card_key

NARROWEST = 40  # below that, one is asked for a larger window
TWO_COLUMNS, WIDEST_LEFT = 120, 190
LOWEST_PLOT, BEST_PLOT, NARROWEST_PLOT = 5, 9, 34
KEYS = ("quit", "help", "pause", "longer", "card", "reasons", "kill", "language", "theme")
LETTERS = {"quit": "q", "help": "?", "pause": "p", "longer": "+-", "card": "↑↓", "reasons": "r", "kill": "k", "language": "l"}
LETTERS["theme"] = "t"
ALERT_ROWS = 3

OF_THE_CARD = ("utilisation", "memory_used_bytes", "power_w", "temperature_c", "sm_clock_mhz")
PALETTES = {"utilisation": "busy", "memory_used_bytes": "memory", "power_w": "power", "temperature_c": "heat"}
FIRST = ("card.utilisation", "run.step_s", "card.memory_used_bytes", "run.loss", "card.power_w", "card.temperature_c")
THEN = ("card.sm_clock_mhz", "host.cpu_percent", "run.samples_per_s", "run.input_share", "host.memory_used_bytes")
MARKED = ("run.step_s", "run.samples_per_s")  # where a slow stretch is shown
LAST = ("host.disk_read_bytes_s", "host.net_received_bytes_s")


def top(scene: Scene, width: int) -> Row:
    """What this is, of what machine, and whether it moves."""
    words = scene.words
    state = "paused" if scene.paused else "replay" if scene.replayed else "live"
    left: Row = [Piece(" flatout watch ", "brand"), blank(), outside(scene.host_name, "name"), blank(2)]
    left.append(Piece("❚❚ " if scene.paused else "▶ " if scene.replayed else "● ", "warm" if scene.paused else "calm"))
    left.append(Piece(words(f"screen.{state}", pace=f"{scene.pace:g}"), "value", action="key:p"))
    right: Row = [
        Piece(words("screen.over", length=seconds(scene.length_s).replace(" 00 s", "")), "dim", action="key:+"),
        blank(2),
    ]
    right.append(Piece(lines.clock_time(scene.picture.t), "big"))
    return fit(spread(left, [*right, blank()], width), width)


def bottom(scene: Scene, width: int) -> Row:
    row: Row = []
    for name in KEYS:
        if name == "card" and len(scene.picture.cards) < 2:
            continue
        letter = LETTERS[name]
        row += [
            Piece(f" {letter}", "key", action=f"key:{letter[0]}"),
            Piece(f" {scene.words(f'screen.key.{name}')} ", "label", action=f"key:{letter[0]}"),
        ]
    return fit(row, width)


def body(scene: Scene, width: int, height: int) -> Rows:
    """At least `height` rows; more where all does not fit, and it scrolls."""
    if width < NARROWEST:
        return wrapped(scene.words("screen.too-narrow", columns=NARROWEST), max(4, width), "warm")
    head = [*_holding(scene, width), *_no_cards(scene, width), *_notes(scene, width)]
    room = height - len(head)
    rows = _wide(scene, width, room) if width >= TWO_COLUMNS else _narrow(scene, width, room)
    return [fit(row, width) for row in (*head, *rows)]


def _narrow(scene: Scene, width: int, height: int) -> Rows:
    above = [*cards(scene, width, max(PANEL, height // 2)), *run_panels.training(scene, width, with_slow=True)]
    machine = run_panels.host(scene, width)
    more = [
        *(run_panels.stretches(scene, width, 12) if scene.picture.slow else []),
        *findings(scene, width, 12),
        *run_panels.processes(scene, width, 20),
        *run_panels.told(scene, width, 8),
    ]
    room = height - len(above) - len(machine)
    # All of it, or the first screen without what scrolls: plots get what is left.
    left = room - len(more) if room - len(more) >= LOWEST_PLOT else room
    return [*above, *_plots(scene, width, max(LOWEST_PLOT, left), _plotted(scene)), *machine, *more]


def _wide(scene: Scene, width: int, height: int) -> Rows:
    left = min(WIDEST_LEFT, width * 3 // 5)
    right = width - left
    one = cards(scene, left, max(PANEL, height * 3 // 5))
    two = [*run_panels.training(scene, right), *run_panels.stretches(scene, right, 14), *findings(scene, right, 12)]
    two += run_panels.host(scene, right)
    two += [*run_panels.processes(scene, right, max(3, height - len(two) - 12)), *run_panels.told(scene, right, 12)]
    names = _plotted(scene)
    # The machine's plots stand under the machine, where there is room.
    beneath = [name for name in names if name.startswith("host.")]
    if height - len(two) < LOWEST_PLOT or beneath == names:
        beneath = []
    one += _plots(scene, left, max(LOWEST_PLOT, height - len(one)), [name for name in names if name not in beneath])
    two += _plots(scene, right, height - len(two), beneath) if beneath else []
    return beside([(one, left), (two, right)])


def _holding(scene: Scene, width: int) -> Rows:
    """What is wrong now stands above all else."""
    rows: Rows = []
    for one in reversed(scene.picture.told):
        if one.holds and one.alert.code != "run-ended":
            rows += wrapped(lines.alert(one.alert, scene.words), width - 2, "alert")
    return [fit([Piece(" ", "alert"), *row], width, "alert") for row in rows[:ALERT_ROWS]]


def _no_cards(scene: Scene, width: int) -> Rows:
    why = scene.picture.no_cards
    if why is None:
        return []
    said = scene.words("watch.no-cards", why=scene.words(f"missing.{why.reason}"))
    return [[blank(), *row] for row in wrapped(said, width - 2, "warm")]


def _notes(scene: Scene, width: int) -> Rows:
    said = [scene.words(f"note.{note.code}", **note.params) for note in scene.picture.notes]
    return [[blank(), *row] for text in said for row in wrapped(text, width - 2, "dim")]


# -- plots --------------------------------------------------------------------------------------------------------------------


def _plots(scene: Scene, width: int, height: int, names: list[str]) -> Rows:
    across, down = _grid(width, height, len(names))
    rows: Rows = []
    for line in range(down):
        here = names[line * across : (line + 1) * across]
        tall = height // down + (line < height % down)
        widths = [width // len(here) + (place < width % len(here)) for place in range(len(here))]
        rows += beside([(_plot(scene, name, wide, tall), wide) for name, wide in zip(here, widths, strict=True)])
    return rows


def _grid(width: int, height: int, number: int) -> tuple[int, int]:
    """How many plots side by side, and how many rows of them."""
    if not number:
        return 1, 0
    across = min(number, 3, max(1, width // NARROWEST_PLOT))
    return across, max(1, min(height // BEST_PLOT, -(-number // across)))


def _plotted(scene: Scene) -> list[str]:
    there = scene.traces.names()
    return [name for name in (*FIRST, *THEN, *LAST) if _key(scene, name) in there or (name.startswith("card.") and scene.card)]


def _key(scene: Scene, name: str) -> str:
    kind, _, figure = name.partition(".")
    return card_key(scene.card.sample.index, figure) if kind == "card" and scene.card is not None else name


def _plot(scene: Scene, name: str, width: int, height: int) -> Rows:
    words, inner = scene.words, width - 2
    kind, _, figure = name.partition(".")
    values = scene.traces.window(_key(scene, name), scene.picture.t, scene.length_s, 2 * inner)
    known = [value for value in values if value is not None]
    axis = low, high = _axis(scene, kind, figure, values)
    title = [
        Piece(words(f"screen.plot.{name.replace('.', '-')}", index=scene.card.sample.index if scene.card else 0), "title"),
        blank(),
    ]
    title.append(_now(scene, kind, figure, known))
    right = [Piece(SHOWN[figure](high), "dim")] if known else []
    palette, lines_high = PALETTES.get(figure, "cpu" if kind == "host" else "step"), max(1, height - 2)
    if figure == "loss":
        rows = plots.line(values, lines_high, axis, palette)
    else:
        rows = plots.area(values, lines_high, axis, palette, _marks(scene, 2 * inner) if name in MARKED else [])
    if not known:
        rows[len(rows) // 2] = [blank(), Piece(words("screen.nothing-yet"), "dim")]
    ago = words("screen.ago", length=seconds(scene.length_s).replace(" 00 s", ""))
    return box(rows, width, title, right=right, foot=(ago, SHOWN[figure](low) if low else words("screen.now")))


def _now(scene: Scene, kind: str, figure: str, known: list[float]) -> Piece:
    """What the card says now: the plot's last point may be older."""
    if kind == "card" and scene.card is not None:
        value = getattr(scene.card.sample, figure)
    elif kind == "host":
        value = getattr(scene.picture.host, figure)
    else:
        value = known[-1] if known else Missing("no-steps")
    if isinstance(value, Missing):
        return Piece(NOTHING, "dim", reason(scene.words, value), "reasons")
    return Piece(SHOWN[figure](value), "big")


def _axis(scene: Scene, kind: str, figure: str, values: list[float | None]) -> tuple[float, float]:
    card, host = scene.card, scene.picture.host
    if figure in ("utilisation", "cpu_percent", "input_share"):
        return 0.0, 100.0
    if figure == "loss":
        return plots.range_of(values)
    limits: dict[str, float | Missing] = {}
    if kind == "card" and card is not None:
        sample = card.sample
        limits = {
            "memory_used_bytes": sample.memory_total_bytes,
            "power_w": sample.power_limit_w,
            "temperature_c": sample.temperature_limit_c,
            "sm_clock_mhz": sample.sm_clock_max_mhz,
        }
    elif kind == "host":
        limits = {"memory_used_bytes": host.memory_total_bytes}
    limit = limits.get(figure, Missing("not-reported"))
    most = max((value for value in values if value is not None), default=0.0)
    if not isinstance(limit, Missing) and limit >= most:
        return 0.0, float(limit)
    return 0.0, plots.top_of(values, 1e-6)


def _marks(scene: Scene, columns: int) -> list[bool]:
    """Which columns lie in a slow stretch."""
    first, width = scene.picture.t - scene.length_s, scene.length_s / columns
    middles = [first + (place + 0.5) * width for place in range(columns)]
    return [any(slow.start <= t <= slow.end for slow in scene.picture.slow) for t in middles]


def longer(length_s: float, by: int) -> float:
    place = LENGTHS_S.index(length_s) if length_s in LENGTHS_S else 0
    return LENGTHS_S[min(len(LENGTHS_S) - 1, max(0, place + by))]
