"""Cards: a panel for each where there is room, and one line each where there are many. Pure."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.watch.lines import NOTHING
from flatout.watch.view import plots
from flatout.watch.view.picture import CardView
from flatout.watch.view.rows import Piece, Row, Rows, beside, box, cut, fit, joined, width_of
from flatout.watch.view.scene import SHOWN, Scene, blank, figure, label, named, rate, reason
from flatout.watch.view.traces import card_key

PANEL = 5  # rows
WIDEST_PANEL, NARROWEST_PANEL = 110, 62
GIB = 1 << 30
MONO = ("█", "▓", "▒")  # of memory: the training, others, not known


def cards(scene: Scene, width: int, most: int) -> Rows:
    """In at most so many rows, if that is possible: otherwise what has one line each, and it scrolls."""
    views = scene.picture.cards
    across = max(1, min(len(views), width // NARROWEST_PANEL))
    down = -(-len(views) // across)
    if not views:
        return []
    if PANEL * down > most and len(views) > 1:
        return _table(scene, width)
    found: Rows = []
    for first in range(0, len(views), across):
        row = views[first : first + across]
        widths = [width // across + (place < width % across) for place in range(across)]
        found += beside([(_panel(scene, first + place, view, widths[place]), widths[place]) for place, view in enumerate(row)])
    return found


def _panel(scene: Scene, place: int, view: CardView, width: int) -> Rows:
    card, inner = view.sample, width - 4
    chosen = place == min(scene.selected, len(scene.picture.cards) - 1) and len(scene.picture.cards) > 1
    title = [Piece(f"GPU {card.index}", "title", action=f"card:{place}"), blank(), Piece(named(card.name), "name")]
    right = [Piece(scene.words("screen.training-here"), "own")] if view.trains else []
    two = inner >= 56
    left_width = inner // 2 if two else inner
    left = [_busy(scene, view, left_width), _memory(scene, view, left_width), _held(scene, view, left_width)]
    right_rows = [_heat(scene, view), _clocks(scene, view), _link(scene, view)]
    rows = beside([(left, left_width), (right_rows, inner - left_width - 2)], 2) if two else [*left[:2], right_rows[0], left[2]]
    framed = [[blank(), *fit(row, inner), blank()] for row in rows]
    if not two:
        framed = framed[: PANEL - 2] if not isinstance(card.held_by, Missing) and not card.held_by else [*framed[:2], framed[3]]
    return box(framed, width, title, right=right, frame="chosen" if chosen else "frame")


def _busy(scene: Scene, view: CardView, width: int) -> Row:
    card = view.sample
    head = [label(scene, "busy"), blank(), figure(scene, card.utilisation, SHOWN["utilisation"])]
    share = 0.0 if isinstance(card.utilisation, Missing) else card.utilisation / 100
    return _with_bar(head, [(share, "busy.3", plots.FULL)], width, label_width(scene))


def label_width(scene: Scene) -> int:
    return max(width_of([label(scene, key)]) for key in ("busy", "memory")) + 1


def _with_bar(head: Row, parts: list[tuple[float, str, str]], width: int, label_cells: int) -> Row:
    name, rest = fit(head[:1], label_cells), head[2:]
    row = [*name, *rest, blank()]
    room = width - width_of(row)
    return [*row, *plots.bar(parts, room)] if room >= 6 else row


def _memory(scene: Scene, view: CardView, width: int) -> Row:
    """What the run holds, what others hold, what nobody is known to hold, and what is free."""
    card = view.sample
    used, total = card.memory_used_bytes, card.memory_total_bytes
    style = {"hot": "hot", "warm": "warm"}.get(view.levels.get("memory_used_bytes", ""), "value")
    shown = figure(scene, used, lambda value: f"{value / GIB:.1f}", style)
    of = figure(scene, total, lambda value: f"{value / GIB:.1f} GiB", "label")
    head = [label(scene, "memory"), blank(), shown, Piece("/", "dim"), of]
    return _with_bar(head, memory_parts(scene, view), width, label_width(scene))


def memory_parts(scene: Scene, view: CardView) -> list[tuple[float, str, str]]:
    used, total = view.sample.memory_used_bytes, view.sample.memory_total_bytes
    if isinstance(used, Missing) or isinstance(total, Missing) or not total:
        return []
    own = 0 if isinstance(view.own_bytes, Missing) else min(view.own_bytes, used)
    others = 0 if isinstance(view.other_bytes, Missing) else min(view.other_bytes, used - own)
    rest = used - own - others
    own_mark, other_mark, rest_mark = MONO if scene.mono else (plots.FULL,) * 3
    return [(own / total, "own", own_mark), (others / total, "other", other_mark), (rest / total, "rest", rest_mark)]


def _held(scene: Scene, view: CardView, width: int) -> Row:
    held = view.sample.held_by
    if isinstance(held, Missing):
        return [label(scene, "held-back"), blank(), Piece(NOTHING, "dim", reason(scene.words, held), "reasons")]
    if view.sample.idle is True:
        return [Piece(scene.words("screen.idle"), "dim")]
    if not held:
        return [Piece(scene.words("screen.not-held"), "dim")]
    return fit([label(scene, "held-back"), blank(), *_reasons(scene, held)], width)


def _reasons(scene: Scene, held: tuple[str, ...]) -> Row:
    parts = [[Piece(held_word(scene, name), "hot" if "THERMAL" in name or "BRAKE" in name else "warm", name)] for name in held]
    return joined(parts, scene.words("watch.comma"))


def held_word(scene: Scene, name: str) -> str:
    key = f"screen.held.{name}"
    return scene.words(key) if scene.words.has(key) else name


def _heat(scene: Scene, view: CardView) -> Row:
    card = view.sample
    style = {"hot": "hot", "warm": "warm"}.get(view.levels.get("temperature_c", ""), "value")
    parts = [[figure(scene, card.temperature_c, SHOWN["temperature_c"], style)]]
    if not isinstance(card.temperature_limit_c, Missing):
        parts[0].append(Piece(f"/{card.temperature_limit_c}", "dim"))
    parts.append([figure(scene, card.power_w, lambda value: f"{value:.0f}"), Piece("/", "dim")])
    parts[-1].append(figure(scene, card.power_limit_w, SHOWN["power_w"], "label"))
    parts.append([label(scene, "fan"), blank(), figure(scene, card.fan_percent, SHOWN["utilisation"])])
    return joined(parts, "  ")


def _clocks(scene: Scene, view: CardView) -> Row:
    card = view.sample
    style = {"hot": "hot", "warm": "warm"}.get(view.levels.get("sm_clock_mhz", ""), "value")
    core = [figure(scene, card.sm_clock_mhz, lambda value: f"{value:.0f}", style), Piece("/", "dim")]
    core.append(figure(scene, card.sm_clock_max_mhz, SHOWN["sm_clock_mhz"], "label"))
    memory = [label(scene, "memory-clock"), blank(), figure(scene, card.memory_clock_mhz, lambda value: f"{value:.0f}")]
    return joined([core, memory], "  ")


def _link(scene: Scene, view: CardView) -> Row:
    card = view.sample
    lanes = figure(scene, card.link_width, lambda value: f"x{value:.0f}")
    parts = [
        [Piece("PCIe", "label"), blank(), figure(scene, card.link_generation, lambda value: f"{value:.0f}"), blank(), lanes]
    ]
    parts.append([Piece("↓", "label"), figure(scene, card.link_received_bytes_s, rate)])
    parts.append([Piece("↑", "label"), figure(scene, card.link_sent_bytes_s, rate)])
    return joined(parts, "  ")


# -- one line each ------------------------------------------------------------------------------------------------------------


def _table(scene: Scene, width: int) -> Rows:
    rows = [_line(scene, place, view, width - 4) for place, view in enumerate(scene.picture.cards)]
    framed = [[blank(), *fit(row, width - 4), blank()] for row in rows]
    return box(framed, width, [Piece(scene.words("screen.cards", count=len(rows)), "title")])


def _line(scene: Scene, place: int, view: CardView, width: int) -> Row:
    card = view.sample
    chosen = place == min(scene.selected, len(scene.picture.cards) - 1)
    mark = Piece("▸" if chosen else "●" if view.trains else " ", "own" if view.trains else "accent", action=f"card:{place}")
    name_cells = 0 if width < 90 else min(22, width // 6)
    row: Row = [mark, Piece(f"{card.index:>2}", "title", action=f"card:{place}"), blank()]
    if name_cells:
        row += [*fit([Piece(cut(named(card.name).removeprefix("NVIDIA "), name_cells), "name")], name_cells), blank()]
    bars = max(6, (width - name_cells - 62) // 3)
    busy = [] if isinstance(card.utilisation, Missing) else [(card.utilisation / 100, "busy.3", plots.FULL)]
    row += [*_right(figure(scene, card.utilisation, SHOWN["utilisation"]), 5), blank(), *plots.bar(busy, bars), blank()]
    shown = figure(scene, card.memory_used_bytes, lambda value: f"{value / GIB:.1f}")
    total = figure(scene, card.memory_total_bytes, lambda value: f"{value / GIB:.0f} GiB", "label")
    row += [
        *_right(shown, 5),
        Piece("/", "dim"),
        *fit([total], 7),
        blank(),
        *plots.bar(memory_parts(scene, view), bars),
        blank(),
    ]
    heat = {"hot": "hot", "warm": "warm"}.get(view.levels.get("temperature_c", ""), "value")
    row += _right(figure(scene, card.temperature_c, lambda value: f"{value:.0f}°", heat), 4)
    row += [*_right(figure(scene, card.power_w, SHOWN["power_w"]), 7)]
    clock = {"hot": "hot", "warm": "warm"}.get(view.levels.get("sm_clock_mhz", ""), "value")
    row += [*_right(figure(scene, card.sm_clock_mhz, SHOWN["sm_clock_mhz"], clock), 9), blank()]
    held = _reasons(scene, card.held_by) if isinstance(card.held_by, tuple) and card.idle is not True else []
    room = width - width_of(row)
    if room >= 20:
        cells = room - 1 - (min(24, room // 2) if held else 0)
        values = scene.traces.window(card_key(card.index, "utilisation"), scene.picture.t, scene.length_s, cells)
        row += [*plots.spark(values, 0, 100, "busy.2"), blank()]
        room = width - width_of(row)
    return [*row, *fit(held, room)]


def _right(one: Piece, width: int) -> Row:
    return [blank(max(0, width - width_of([one]))), one]
