"""`flatout watch`: the cards, the host and the running training, in plain lines."""

from __future__ import annotations

import math
import os
from pathlib import Path

from flatout.base import records
from flatout.base.clock import SystemClock
from flatout.base.errors import UsageError
from flatout.cli.commandline import Context, echo, option, pass_context, words_of
from flatout.cli.commandline import command as make_command
from flatout.watch import lines
from flatout.watch.session import Session

EVERY_S = 1.0
FIRST_S = 0.5  # between the two looks of --once: a rate needs two
SHOWN_S, OFTEN_S = 10.0, 60.0  # a line every second for a minute, later every ten seconds


@make_command(name="watch")
@option("--once", is_flag=True, help="watch-once")
@option("--for", "length", metavar="SECONDS", type=float, help="watch-for")
@option("--json", "as_json", is_flag=True, help="json")
@pass_context
def command(context: Context, once: bool, length: float | None, as_json: bool) -> None:
    words, clock = words_of(context), SystemClock()
    if length is not None and (once or not math.isfinite(length) or length <= 0):
        raise UsageError("error.watch-for", value=f"{length:g}")
    with Session(clock, Path.cwd(), os.environ) as session:
        if once:
            session.turn()
            clock.sleep(FIRST_S)
            look, _ = session.turn()
            echo(records.encode(look).decode() if as_json else "\n".join(lines.once(look, words)), nl=not as_json)
            return
        began, shown = clock.monotonic(), -math.inf
        try:
            while length is None or clock.monotonic() - began < length:
                look, fresh = session.turn()
                passed = clock.monotonic() - began
                if not as_json:
                    said = [lines.alert(alert, words) for alert in fresh]
                    if passed < OFTEN_S or passed - shown >= SHOWN_S:
                        shown = passed
                        said = [*lines.now(look, words), *said]
                    for line in said:
                        echo(line)
                rest = EVERY_S - (clock.monotonic() - began) % EVERY_S
                clock.sleep(rest if length is None else min(rest, max(0.0, length - (clock.monotonic() - began))))
        except KeyboardInterrupt:
            pass  # the usual end of a session without a length
        watched = session.summary()
        echo(records.encode(watched).decode() if as_json else "\n".join(lines.summary(watched, words)), nl=not as_json)
