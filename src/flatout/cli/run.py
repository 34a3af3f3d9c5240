"""`flatout run SCRIPT ARGS`: the unmodified script, and at the end where the time went."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flatout.base import records
from flatout.base.clock import SystemClock
from flatout.base.errors import UsageError
from flatout.base.words import Words
from flatout.cli.commandline import UNPROCESSED, Context, argument, option, pass_context, words_of
from flatout.cli.commandline import command as make_command
from flatout.launch import child, environment, folder, interpreter, target
from flatout.launch.run import Finished, run_observed, run_plain

if TYPE_CHECKING:
    from flatout.measure.model import Summary


@make_command(name="run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@option("--python", metavar="PATH", help="python")
@option("--gpu-id", metavar="ID", help="gpu-id")
@option("--gpu-memory-fraction", type=float, metavar="SHARE", help="gpu-memory-fraction")
@option("--json", "as_json", is_flag=True, help="run-json")
@option("--quiet", "-q", is_flag=True, help="run-quiet")
@argument("script", nargs=-1, type=UNPROCESSED, required=True, metavar="SCRIPT [ARGS]...")
@pass_context
def command(
    context: Context,
    python: str | None,
    gpu_id: str | None,
    gpu_memory_fraction: float | None,
    as_json: bool,
    quiet: bool,
    script: tuple[str, ...],
) -> None:
    if gpu_memory_fraction is not None and not 0 < gpu_memory_fraction <= 1:
        raise UsageError("error.memory-fraction", value=gpu_memory_fraction)
    path, _ = interpreter.choose(python, os.environ)
    line = target.command_line(path, script)
    if environment.switched_off(os.environ):
        sys.exit(child.end_like(run_plain(line, os.environ)))
    words = words_of(context)
    environ = {**os.environ, **_asked_device(gpu_id, words)}
    with child.Ending() as ending:
        try:
            finished = run_observed(line, environ, SystemClock(), gpu_memory_fraction, ending.hold)
        except folder.NoPlaceForRecordsError as error:
            _say(words("error.runs-unobserved", detail=error.params["detail"]))
            sys.exit(child.end_like(run_plain(line, environ)))
        try:
            _tell(finished, path, words, as_json, quiet)
        except (Exception, SystemExit) as error:
            # Our own trouble at the end never changes how the script ended; rich exits where nobody reads any more.
            _say(words("error.no-summary", detail=f"{type(error).__name__}: {error}"))
    sys.exit(child.end_like(finished.returncode))


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
        print(f"flatout: {sentence}", file=sys.stderr)


def _asked_device(gpu_id: str | None, words: Words) -> dict[str, str]:
    """What the environment needs for `--gpu-id`; without it the driver is not even asked before the script starts."""
    if gpu_id is None:
        return {}
    from flatout.launch import device
    from flatout.machine import nvml

    chosen = device.decide(nvml.driver(), os.environ, gpu_id)
    _say(words(f"choice.{chosen.reason}", **chosen.params))
    return chosen.exports


def _tell(finished: Finished, python: str, words: Words, as_json: bool, quiet: bool) -> None:
    # Imported here: the script was not to wait for them.
    from flatout.doctor import after_run
    from flatout.machine import facts
    from flatout.measure.summary import summarise
    from flatout.report import doctor as findings_report
    from flatout.report import run as report
    from flatout.report.terminal import show

    summary = summarise(finished, facts.machine(interpreter.describe(python)))
    found = after_run.findings(summary)
    summary.findings = [findings_report.finding_json(finding) for finding in found]
    path = Path(finished.folder) / "summary.json"
    problem = _write(path, summary)
    if as_json:
        sys.stderr.write(records.encode(summary).decode())
    elif not quiet:
        show(sys.stderr, report.render(summary, found, words, str(path)))
    if problem is not None:
        raise problem


def _write(path: Path, summary: Summary) -> OSError | None:
    """A full disk costs the record, not the table."""
    try:
        records.write(path, summary)
    except OSError as error:
        return error
    return None
