"""What stands in front of the window: help, every figure with its reason, the question before a process is ended. Pure."""

from __future__ import annotations

from flatout.base.records import Missing, Struct
from flatout.machine.telemetry import CardSample, HostSample
from flatout.report.numbers import gibibytes
from flatout.watch import lines
from flatout.watch.view.card_panels import MONO
from flatout.watch.view.plots import FULL
from flatout.watch.view.rows import Piece, Row, Rows, box, cut, fit, joined, wrapped
from flatout.watch.view.run_panels import padded
from flatout.watch.view.scene import Scene, blank, figure, named, outside, rate

HELP = ("quit", "help", "pause", "longer", "card", "scroll", "reasons", "kill", "language", "theme", "seek", "mouse")
LETTERS = {
    "quit": "q",
    "help": "?",
    "pause": "p",
    "longer": "+ -",
    "card": "↑ ↓",
    "scroll": "PgUp PgDn",
    "reasons": "r",
    "kill": "k",
    "language": "l",
    "theme": "t",
    "seek": "← →",
    "mouse": "…",
}
OTHERS = ("index", "processes", "held_by", "uuid", "name", "core_percent")
MOST_PROCESSES = 9  # one key each


class Stranger(Struct, frozen=True, kw_only=True):
    """A process as this system knows it: what the question names is what will be ended."""

    pid: int
    started: float
    command: str
    user: str = ""


def help_rows(scene: Scene, width: int) -> Rows:
    words = scene.words
    rows: Rows = []
    for name in HELP:
        if name == "seek" and not scene.replayed:
            continue
        said = wrapped(words(f"screen.help.{name}"), width - 18, "value")
        rows += [[*fit([Piece(LETTERS[name] if place == 0 else "", "accent")], 12), *row] for place, row in enumerate(said)]
    rows += [[], *wrapped(words("screen.help.memory"), width - 4, "label")]
    marks = MONO if scene.mono else (FULL,) * 3
    names = (("own", "memory-own"), ("other", "memory-others"), ("rest", "memory-rest"))
    parts: list[Row] = [
        [Piece(f"{2 * mark} ", style), Piece(words(f"screen.{key}"), "label")]
        for mark, (style, key) in zip(marks, names, strict=True)
    ]
    rows.append(joined(parts, "   "))
    rows += wrapped(words("screen.help.missing"), width - 4, "label")
    rows += wrapped(words("screen.help.slow"), width - 4, "label")
    return box(padded(rows, width), width, [Piece(words("screen.key.help"), "title")], foot=(words("screen.close"), ""))


def reasons(scene: Scene, width: int) -> Rows:
    """Every figure of the chosen card and of the machine; of those that are not given, why."""
    rows: Rows = []
    why = scene.picture.no_cards
    if why is not None:
        rows += wrapped(scene.words("watch.no-cards", why=scene.words(f"missing.{why.reason}")), width - 4, "warm")
    if scene.card is not None:
        card = scene.card.sample
        rows += [[Piece(f"GPU {card.index} {named(card.name)}", "title")], [Piece(named(card.uuid), "dim")]]
        rows += _all(scene, card, width - 4)
    rows += [[], [Piece(scene.words("screen.machine"), "title")], *_all(scene, scene.picture.host, width - 4)]
    return box(
        padded(rows, width), width, [Piece(scene.words("screen.key.reasons"), "title")], foot=(scene.words("screen.close"), "")
    )


def _all(scene: Scene, sample: CardSample | HostSample, width: int) -> Rows:
    """Those that are missing first: it is their reasons that are looked for."""
    rows: Rows = []
    names = [name for name in sample.__struct_fields__ if name not in OTHERS]
    for name in sorted(names, key=lambda name: not isinstance(getattr(sample, name), Missing)):
        value = getattr(sample, name)
        key = f"screen.figure.{name}"
        head = fit([Piece(scene.words(key), "label")], min(34, width // 2))
        if isinstance(value, Missing):
            said = scene.words("screen.not-shown", why=scene.words(f"missing.{value.reason}"))
            rows += [
                [*(head if place == 0 else fit([], min(34, width // 2))), *row]
                for place, row in enumerate(wrapped(f"– {said}", width - min(34, width // 2), "warm"))
            ]
        else:
            rows.append([*head, Piece(_plain(name, value, scene), "value")])
    return rows


def _plain(name: str, value: object, scene: Scene) -> str:
    if isinstance(value, bool):
        return scene.words("screen.yes" if value else "screen.no")
    if not isinstance(value, int | float):
        return str(value)
    for end, shown in (("_bytes_s", rate), ("_bytes", gibibytes)):
        if name.endswith(end):
            return shown(value)
    unit = next((text for end, text in UNITS if name.endswith(end)), "")
    return f"{value:.4g}{unit}" if isinstance(value, float) else f"{value}{unit}"


UNITS = (("_percent", " %"), ("utilisation", " %"), ("memory_busy", " %"), ("_c", " °C"), ("_w", " W"), ("_mhz", " MHz"))


def to_choose(scene: Scene, width: int) -> Rows:
    """Which process is to be ended: by its number."""
    rows: Rows = []
    for place, one in enumerate(scene.picture.processes[:MOST_PROCESSES], 1):
        action = f"kill:{one.pid}" if isinstance(one.pid, int) else ""
        key = Piece(f" {place} ", "key", action=action)
        name = outside(cut(named(one.name), width - 40), "own" if one.ours else "value", action=action)
        rows.append([key, blank(2), Piece(f"{named(one.pid):>8}", "value", action=action), blank(2), name, blank(2)])
        rows[-1].append(figure(scene, one.memory_bytes, gibibytes))
    rows = rows or [[Piece(scene.words("screen.no-processes"), "dim")]]
    return box(
        padded(rows, width), width, [Piece(scene.words("screen.which"), "title")], foot=(scene.words("screen.close"), "")
    )


def question(scene: Scene, who: Stranger | Missing, pid: int, width: int) -> Rows:
    """Named as this system knows it: in a container the driver may tell another system's numbers."""
    words = scene.words
    title = [Piece(words("screen.end-process", pid=pid), "title")]
    if isinstance(who, Missing):
        said = words("screen.cannot-end", pid=pid, why=words(f"missing.{who.reason}"))
        return box(padded(wrapped(said, width - 4, "warm"), width), width, title, foot=(words("screen.close"), ""))
    rows = wrapped(who.command, width - 4, "big")[:4]
    rows += wrapped(words("screen.whose", user=who.user or "–", started=lines.clock_time(who.started)), width - 4, "label")
    run = scene.picture.training
    if run is not None and pid in run.pids:
        rows += wrapped(words("screen.is-the-training"), width - 4, "hot")
    keys: list[Row] = [
        [
            Piece(f" {letter} ", "key", action=f"key:{letter}"),
            Piece(f" {words(f'screen.end.{name}')}", "value", action=f"key:{letter}"),
        ]
        for letter, name in (("y", "ask"), ("x", "now"), ("n", "no"))
    ]
    return box(padded([*rows, [], joined(keys, "   ")], width), width, title, frame="hot")
