"""`flatout watch`: the cards, the host and the running training, in a window or in plain lines."""

from __future__ import annotations

import importlib.util
import math
import os
import platform
import sys
from pathlib import Path

from flatout.base import records
from flatout.base.clock import Clock, SystemClock
from flatout.base.errors import UsageError
from flatout.base.words import Words
from flatout.cli.commandline import Context, argument, echo, option, pass_context, words_of
from flatout.cli.commandline import command as make_command
from flatout.watch import events, lines, replay
from flatout.watch.feed import Feed
from flatout.watch.session import Session, Watched

EVERY_S = 1.0
FIRST_S = 0.5  # between the two looks of --once: a rate needs two
SHOWN_S, OFTEN_S = 10.0, 60.0  # a line every second for a minute, later every ten seconds


@make_command(name="watch")
@option("--once", is_flag=True, help="watch-once")
@option("--for", "length", metavar="SECONDS", type=float, help="watch-for")
@option("--until", metavar="EVENT", multiple=True, help="watch-until")
@option("--notify", metavar="CMD", help="watch-notify")
@option("--plain", is_flag=True, help="watch-plain")
@option("--json", "as_json", is_flag=True, help="json")
@argument("run", required=False)
@pass_context
def command(
    context: Context,
    run: str | None,
    once: bool,
    length: float | None,
    until: tuple[str, ...],
    notify: str | None,
    plain: bool,
    as_json: bool,
) -> None:
    words, clock = words_of(context), SystemClock()
    if run is not None:
        given = {"--once": once, "--for": length is not None, "--until": bool(until), "--notify": notify is not None}
        _replay(run, [flag for flag, is_given in given.items() if is_given], words, plain, as_json)
        return
    if once and (until or notify is not None):
        raise UsageError("error.watch-once")
    if length is not None and (once or not math.isfinite(length) or length <= 0):
        raise UsageError("error.watch-for", value=f"{length:g}")
    wanted = events.events_named(until)
    notifier = None if notify is None else events.Notifier(events.command_of(notify), platform.node())
    with Session(clock, Path.cwd(), os.environ) as session:
        if once:
            _once(session, clock, words, as_json)
            return
        feed = Feed(session, wanted, notifier)
        try:
            if not (plain or as_json) and _window_fits(words):
                words = _in_window(feed, words, length)
            else:
                _in_lines(feed, clock, words, length, as_json)
        finally:
            if notifier is not None:
                notifier.close()
        watched = session.summary()
        watched.notes += notifier.notes if notifier is not None else []
        _tell(watched, session.folder, words, as_json)
    if wanted:
        sys.exit(events.NONE_CAME if feed.code is None else feed.code)


def _once(session: Session, clock: Clock, words: Words, as_json: bool) -> None:
    session.turn()
    clock.sleep(FIRST_S)
    look, _ = session.turn()
    echo(records.encode(look).decode() if as_json else "\n".join(lines.once(look, words)), nl=not as_json)


def _replay(named: str, given: list[str], words: Words, plain: bool, as_json: bool) -> None:
    """A run that has ended: in the window at a pace, elsewhere what its session would have told at its end."""
    if given:
        raise UsageError("error.watch-replay", flag=given[0])
    here = Path.cwd()
    played = replay.Replay(replay.find(named, here, os.environ), SystemClock(), here, os.environ)
    if not (plain or as_json) and _window_fits(words):
        words = _in_window(played, words, None)
    _tell(played.watched(), played.folder, words, as_json)


def _tell(watched: Watched, folder: Path | None, words: Words, as_json: bool) -> None:
    """The summary: averages, peaks, slow stretches, alerts, and what the doctor says of the training."""
    from flatout.watch import verdict  # the rules, which only the end needs

    training = watched.training
    judged = verdict.judge(folder, training) if folder is not None and training is not None else None
    if judged is not None:
        watched.verdict = judged.verdict
    if as_json:
        echo(records.encode(watched).decode(), nl=False)
        return
    said = lines.summary(watched, words)
    said += [words("watch.verdict"), *verdict.said(judged, words)] if judged is not None else []
    echo("\n".join(said))


def _window_fits(words: Words) -> bool:
    """On a terminal that can show one, where textual is installed; where it is not, one sentence says so."""
    terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if not terminal or os.environ.get("TERM", "") in ("dumb", "unknown"):
        return False
    if importlib.util.find_spec("textual") is None:
        echo(f"flatout: {words('watch.no-window')}", err=True)
        return False
    return True


def _in_window(source: Feed | replay.Replay, words: Words, length: float | None) -> Words:
    """Gives back the language that it was left in."""
    from flatout.watch.window import Window  # half a second, which plain lines do not need

    window = Window(source, words, length, lambda: source.code, platform.node())
    window.run()
    return window.scene.words


def _in_lines(feed: Feed, clock: Clock, words: Words, length: float | None, as_json: bool) -> None:
    began, shown = clock.monotonic(), -math.inf
    try:
        while length is None or clock.monotonic() - began < length:
            look = feed.look()
            passed = clock.monotonic() - began
            if not as_json:
                said = [lines.alert(alert, words) for alert in feed.fresh]
                if passed < OFTEN_S or passed - shown >= SHOWN_S:
                    shown = passed
                    said = [*lines.now(look, words), *said]
                for line in said:
                    echo(line)
            if feed.code is not None:
                return
            rest = EVERY_S - (clock.monotonic() - began) % EVERY_S
            clock.sleep(rest if length is None else min(rest, max(0.0, length - (clock.monotonic() - began))))
    except KeyboardInterrupt:
        pass  # the usual end of a session without a length
