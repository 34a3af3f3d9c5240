"""`flatout run SCRIPT ARGS`: the unmodified script, and at the end where the time went."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flatout.base import records
from flatout.base.clock import SystemClock
from flatout.base.words import Words
from flatout.cli.commandline import UNPROCESSED, Context, argument, option, pass_context, words_of
from flatout.cli.commandline import command as make_command
from flatout.launch import child, environment, interpreter, target
from flatout.launch.run import Finished, run_observed, run_plain


@make_command(name="run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@option("--python", metavar="PATH", help="python")
@option("--json", "as_json", is_flag=True, help="run-json")
@option("--quiet", "-q", is_flag=True, help="run-quiet")
@argument("script", nargs=-1, type=UNPROCESSED, required=True, metavar="SCRIPT [ARGS]...")
@pass_context
def command(context: Context, python: str | None, as_json: bool, quiet: bool, script: tuple[str, ...]) -> None:
    path, _ = interpreter.choose(python, os.environ)
    line = target.command_line(path, script)
    if environment.switched_off(os.environ):
        sys.exit(child.end_like(run_plain(line, os.environ)))
    finished = run_observed(line, os.environ, SystemClock())
    words = words_of(context)
    try:
        _tell(finished, path, words, as_json, quiet)
    except Exception as error:  # our own trouble at the end never changes how the script ended
        print(f"flatout: {words('error.no-summary', detail=f'{type(error).__name__}: {error}')}", file=sys.stderr)
    sys.exit(child.end_like(finished.returncode))


def _tell(finished: Finished, python: str, words: Words, as_json: bool, quiet: bool) -> None:
    # Imported here: the script was not to wait for them.
    from flatout.machine import facts
    from flatout.measure.summary import summarise
    from flatout.report import run as report
    from flatout.report.terminal import console_on

    summary = summarise(finished, facts.machine(interpreter.describe(python)))
    path = Path(finished.folder) / "summary.json"
    records.write(path, summary)
    if as_json:
        sys.stderr.write(records.encode(summary).decode())
    elif not quiet:
        console_on(sys.stderr).print(report.render(summary, words, str(path)))
