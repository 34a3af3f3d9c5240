"""The training, its slow stretches, the host, the processes and what was told: pure."""

from __future__ import annotations

from _flatout_agent.wire import PHASES
from flatout.base.records import Missing
from flatout.report.numbers import count, epochs, gibibytes, percent, seconds
from flatout.watch import lines
from flatout.watch.causes import Slow
from flatout.watch.follow import Training
from flatout.watch.view import plots
from flatout.watch.view.picture import ProcessView
from flatout.watch.view.rows import Piece, Row, Rows, box, cut, fit, joined, spread, width_of, wrapped
from flatout.watch.view.scene import Scene, blank, figure, label, named, outside, rate

FILLS = "█▓▒░"  # without colours one after the other
LEAST_PHASE = 0.005
GIB = 1 << 30


def padded(rows: Rows, width: int) -> Rows:
    return [[blank(), *fit(row, width - 4), blank()] for row in rows]


def training(scene: Scene, width: int, with_slow: bool = False) -> Rows:
    """`with_slow`: the newest slow stretch in one line, where there is no room for all that is to be said of it."""
    run, inner = scene.picture.training, width - 4
    title = [Piece(scene.words("screen.training"), "title")]
    if run is None:
        rows = [*wrapped(scene.words("watch.no-run"), inner, "dim"), *wrapped(scene.words("screen.start-one"), inner, "dim")]
        return box(padded(rows, width), width, title)
    if run.running:
        right = [Piece("● ", "calm"), Piece(scene.words("screen.running"), "calm")]
    else:
        how = scene.words(f"watch.ended.{run.ended or 'finished'}")
        right = [Piece("■ ", "dim" if run.ended == "finished" else "hot"), Piece(how, "dim")]
    rows = [*_figures(scene, run, inner), _progress(scene, run, inner), *_phases(scene, inner)]
    if with_slow and scene.picture.slow:
        rows.append(_in_one_line(scene, scene.picture.slow[-1]))
    return box(padded(rows, width), width, [*title, blank(), outside(run.run_id, "name")], right=right)


def _figures(scene: Scene, run: Training, width: int) -> Rows:
    words = scene.words
    loss: float | Missing = run.losses[-1][1] if run.losses else Missing("not-reported")
    style = "value" if isinstance(run.not_finite_from, Missing) else "hot"
    return _flowing(
        [
            [label(scene, "step"), blank(), Piece(count(run.steps), "big")],
            [figure(scene, run.step_s, seconds, "big"), blank(), Piece(words("screen.a-step"), "label")],
            [figure(scene, run.samples_per_s, count, "big"), blank(), Piece(words("screen.samples-s"), "label")],
            [Piece("loss", "label"), blank(), figure(scene, loss, lambda value: f"{value:.4g}", style)],
        ],
        width,
        2,
    )


def _progress(scene: Scene, run: Training, width: int) -> Row:
    words = scene.words
    left: Row = [figure(scene, run.left_s, lambda value: words("watch.left", time=seconds(value)))]
    if isinstance(run.left_s, Missing):
        left = [label(scene, "time-left"), blank(), *left]
    if not run.running:
        left = []
    head: Row = []
    done: float | None = None
    if not isinstance(run.epoch, Missing):
        shown = epochs(run.epoch) or "0"
        known = not isinstance(run.epochs, Missing) and run.epochs
        key = "watch.epoch" if known else "watch.turns"
        head = [Piece(words(key, epoch=shown, epochs=f"{run.epochs:g}" if known else ""), "label"), blank()]
        if not isinstance(run.epochs, Missing) and run.epochs:
            done = min(1.0, run.epoch / run.epochs)
    if done is None and not isinstance(run.left_s, Missing) and not isinstance(run.step_s, Missing) and run.steps:
        whole = run.steps * run.step_s + run.left_s
        done = run.steps * run.step_s / whole if whole > 0 else None
    room = width - width_of(head) - width_of(left) - 2
    if done is None or room < 8:
        return spread(head, left, width)
    return [*head, *plots.bar([(done, "accent", plots.FULL)], room), blank(2), *left]


def _phases(scene: Scene, width: int) -> Rows:
    """One bar of the last minute, and what its parts are."""
    shares = [(name, scene.picture.lately.get(name, 0.0)) for name in PHASES]
    shown = [(name, share) for name, share in shares if share >= LEAST_PHASE]
    if not shown:
        return [[Piece(scene.words("screen.no-phases"), "dim")], []]
    fills = {name: FILLS[place % len(FILLS)] if scene.mono else "█" for place, (name, _) in enumerate(shown)}
    whole = sum(share for _, share in shown)
    bar = plots.bar([(share / whole, f"phase.{name}", fills[name]) for name, share in shown], width)
    legend: list[Row] = []
    for name, share in sorted(shown, key=lambda one: -one[1]):
        part = [Piece(f"{fills[name]} ", f"phase.{name}"), Piece(scene.words(f"phase.{name}"), "label"), blank()]
        part.append(Piece(percent(share), "value"))
        if width_of(joined([*legend, part], "  ")) > width:
            break
        legend.append(part)
    return [[one for one in bar if one.style != "empty"], joined(legend, "  ")]


def stretches(scene: Scene, width: int, most: int) -> Rows:
    """The newest first, with what each step lost and to what."""
    run, slow = scene.picture.training, scene.picture.slow
    if run is None:
        return []
    title = [Piece(scene.words("screen.slow"), "title")]
    inner = width - 4
    if not slow:
        return box(padded([[Piece(scene.words("watch.no-slow"), "dim")]], width), width, title)
    found: Rows = []
    for one in reversed(slow):
        rows = _stretch(scene, one, inner)
        if found and len(found) + len(rows) > most:
            break
        found += rows
    right = [Piece(scene.words("screen.found", count=len(slow)), "dim")]
    return box(padded(found, width), width, title, right=right)


def _in_one_line(scene: Scene, slow: Slow) -> Row:
    words = scene.words
    cause = words(f"watch.cause.{slow.causes[0].name}") if slow.causes else words("screen.not-seen")
    start, end = lines.clock_time(slow.start), lines.clock_time(slow.end)
    return [Piece(words("screen.slow-short", start=start, end=end, slower=percent(slow.slower), cause=cause), "warm")]


def _stretch(scene: Scene, slow: Slow, width: int) -> Rows:
    words = scene.words
    head = words(
        "screen.slow-line",
        start=lines.clock_time(slow.start),
        end=lines.clock_time(slow.end),
        slower=percent(slow.slower),
        step=seconds(slow.step_s),
        usual=seconds(slow.usual_step_s),
    )
    rows = wrapped(head, width, "warm")
    if not slow.causes:
        return [*rows, *_hung(words("watch.cause-not-seen"), width)]
    for cause in slow.causes:
        said = words("watch.cause-line", share=percent(cause.share), cause=words(f"watch.cause.{cause.name}"))
        said += "" if cause.certain else words("watch.not-told-apart")
        rows += _hung(said if cause.code is None else f"{said} ({cause.code})", width)
    return rows


def _hung(text: str, width: int) -> Rows:
    return [[Piece("  "), *row] for row in wrapped(text, width - 2, "value")]


def host(scene: Scene, width: int) -> Rows:
    seen, inner = scene.picture.host, width - 4
    half = (inner - 2) // 2
    cpu = [label(scene, "cpu"), blank(), figure(scene, seen.cpu_percent, lambda value: f"{value:.0f} %"), blank()]
    cpu_share = 0.0 if isinstance(seen.cpu_percent, Missing) else seen.cpu_percent / 100
    used, total = seen.memory_used_bytes, seen.memory_total_bytes
    ram = [label(scene, "ram"), blank(), figure(scene, used, lambda value: f"{value / GIB:.1f}"), Piece("/", "dim")]
    ram += [figure(scene, total, gibibytes, "label"), blank()]
    ram_share = 0.0 if isinstance(used, Missing) or isinstance(total, Missing) or not total else used / total
    first = [*_barred(cpu, cpu_share, "cpu.3", half), blank(2), *_barred(ram, ram_share, "memory.3", inner - half - 2)]
    shm = [Piece("/dev/shm", "label"), blank(), figure(scene, seen.shm_used_bytes, lambda value: f"{value / GIB:.1f}")]
    shm += [Piece("/", "dim"), figure(scene, seen.shm_total_bytes, gibibytes, "label")]
    disk = [label(scene, "disk"), blank(), figure(scene, seen.disk_read_bytes_s, rate), Piece("↓ ", "dim")]
    disk += [figure(scene, seen.disk_written_bytes_s, rate), Piece("↑", "dim")]
    net = [label(scene, "network"), blank(), figure(scene, seen.net_received_bytes_s, rate), Piece("↓ ", "dim")]
    net += [figure(scene, seen.net_sent_bytes_s, rate), Piece("↑", "dim")]
    parts = [shm, disk, net]
    if isinstance(seen.swap_used_bytes, int) and seen.swap_used_bytes:
        parts.append([label(scene, "swap"), blank(), figure(scene, seen.swap_used_bytes, gibibytes)])
    rows = [first, *_flowing(parts, inner)]
    return box(
        padded(rows, width), width, [label(scene, "machine")._replace(style="title"), blank(), outside(scene.host_name, "name")]
    )


def _flowing(parts: list[Row], width: int, gap: int = 3) -> Rows:
    """As many on a row as fit."""
    rows: Rows = []
    for part in parts:
        if rows and width_of(rows[-1]) + gap + width_of(part) <= width:
            rows[-1] = [*rows[-1], blank(gap), *part]
        else:
            rows.append(part)
    return rows


def _barred(head: Row, share: float, style: str, width: int) -> Row:
    room = width - width_of(head)
    return fit([*head, *plots.bar([(share, style, plots.FULL)], room)] if room >= 4 else head, width)


def processes(scene: Scene, width: int, most: int) -> Rows:
    found = scene.picture.processes
    if not scene.picture.cards:
        return []
    title = [Piece(scene.words("screen.processes"), "title")]
    if not found:
        return box(padded([[Piece(scene.words("screen.no-processes"), "dim")]], width), width, title)
    rows = [_process(scene, one, width - 4) for one in found[:most]]
    right = [Piece(scene.words("screen.found", count=len(found)), "dim")] if len(found) > most else []
    return box(padded(rows, width), width, title, right=right)


def _process(scene: Scene, one: ProcessView, width: int) -> Row:
    action = f"kill:{one.pid}" if isinstance(one.pid, int) else ""
    tip = scene.words("screen.click-to-end") if action else ""
    memory = figure(scene, one.memory_bytes, gibibytes)
    busy = figure(scene, one.busy_percent, lambda value: f"{value:.0f} %")
    end: Row = [blank(max(1, 10 - width_of([memory]))), memory, blank(max(1, 7 - width_of([busy]))), busy]
    mark = Piece("● " if one.ours else "  ", "own")
    start: Row = [
        mark,
        Piece(f"GPU {one.card:<2}", "label"),
        blank(),
        Piece(f"{named(one.pid):>8}", "value", tip, action),
        blank(2),
    ]
    room = max(4, width - width_of(start) - width_of(end))
    name = named(one.name)
    return [*start, *fit([outside(cut(name, room), "own" if one.ours else "value", tip, action)], room), *end]


def told(scene: Scene, width: int, most: int) -> Rows:
    """The newest first; those that hold are marked."""
    found = scene.picture.told
    if not found:
        return []
    rows: Rows = []
    for one in reversed(found):
        text = f"{lines.clock_time(one.t)}  {lines.alert(one.alert, scene.words)}"
        rows += wrapped(text, width - 4, "hot" if one.holds else "dim")
        if len(rows) >= most:
            break
    return box(padded(rows[:most], width), width, [Piece(scene.words("screen.alerts"), "title")])
