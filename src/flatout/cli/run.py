"""`flatout run SCRIPT ARGS`: the unmodified script, and at the end where the time went."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flatout.base import records
from flatout.base.clock import SystemClock
from flatout.base.errors import FlatoutError, UsageError
from flatout.base.secrets import secrets_in
from flatout.base.words import Words
from flatout.cli.commandline import UNPROCESSED, Context, argument, option, options_of, pass_context, words_of
from flatout.cli.commandline import command as make_command
from flatout.cli.knob_flags import asked as asked_knobs
from flatout.cli.knob_flags import check_memory_share, knob_options
from flatout.cli.knob_flags import sentences as knob_sentences
from flatout.launch import child, compiled, environment, folder, interpreter, own_batch, target
from flatout.launch.run import Finished, Wanted, run_observed, run_plain
from flatout.launch.settings import check_flags, settle

if TYPE_CHECKING:
    from flatout.launch.protection import Protection
    from flatout.measure.auto import AutoTuning
    from flatout.measure.model import Summary
    from flatout.tune.execution.auto_tuning import AutoTuner


@make_command(name="run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@option("--python", metavar="PATH", help="python")
@option("--gpu-id", metavar="ID", help="gpu-id")
@option("--gpu-memory-fraction", type=float, metavar="SHARE", help="gpu-memory-fraction")
@knob_options
@option("--auto", is_flag=True, help="run-auto")
@option("--bisect", is_flag=True, help="run-bisect")
@option("--deep", is_flag=True, help="run-deep")
@option("--json", "as_json", is_flag=True, help="run-json")
@option("--quiet", "-q", is_flag=True, help="run-quiet")
@argument("script", nargs=-1, type=UNPROCESSED, required=True, metavar="SCRIPT [ARGS]...")
@pass_context
def command(
    context: Context,
    /,
    python: str | None,
    gpu_id: str | None,
    gpu_memory_fraction: float | None,
    auto: bool,
    bisect: bool,
    deep: bool,
    as_json: bool,
    quiet: bool,
    script: tuple[str, ...],
    **knob_flags: Any,
) -> None:
    check_memory_share(gpu_memory_fraction)
    path, _ = interpreter.choose(python, os.environ)
    line = target.command_line(path, script, options_of(context))
    if environment.switched_off(os.environ):
        sys.exit(child.end_like(run_plain(line, os.environ)))
    words = words_of(context)
    asked = asked_knobs(knob_flags)
    observing = {"--auto": auto, "--deep": deep, "--bisect": bisect, "--gpu-memory-fraction": gpu_memory_fraction is not None}
    check_flags(asked, _given(observing))
    environ = {**os.environ, **_asked_device(gpu_id, words)}
    if asked.safe:
        sys.exit(child.end_like(run_plain(line, environ)))
    settings = settle(asked, script, path, os.environ, gpu_id)
    environ = {**environ, **compiled.caches_for(settings.values, environ)}
    line = own_batch.put_on(line, settings, asked, environ, lambda held: _say_how_held(held, words))
    if bisect and not settings.for_the_agent:
        raise UsageError("error.bisect-without-knobs")
    for sentence in knob_sentences(settings, words):
        _say(sentence)
    wanted = Wanted(memory_fraction=gpu_memory_fraction, deep=deep, auto=auto, settings=settings)
    tuner = _tuner(words, secrets_in(line, environ)) if auto else None
    with child.Ending() as ending:
        try:
            finished = run_observed(line, environ, SystemClock(), wanted, ending.hold, tuner.beside if tuner else None)
        except folder.NoPlaceForRecordsError as error:
            _say(words("error.runs-unobserved", detail=error.params["detail"]))
            if settings.values:
                _say(words("error.runs-without-knobs"))
            sys.exit(child.end_like(run_plain(line, environ)))
        try:
            _tell(finished, path, words, (as_json, quiet), tuner)
        except (Exception, SystemExit) as error:
            # Our own trouble at the end never changes how the script ended; rich exits where nobody reads any more.
            _say(words("error.no-summary", detail=f"{type(error).__name__}: {error}"))
    if bisect:
        _bisect(finished, wanted, environ, words)
    sys.exit(child.end_like(finished.returncode))


def _given(observing: Mapping[str, bool]) -> list[str]:
    if observing["--auto"] and observing["--deep"]:  # the deep look slows some steps on purpose
        raise UsageError("error.flags-contradict", one="--auto", other="--deep")
    return [flag for flag, given in observing.items() if given]


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
        print(f"flatout: {sentence}", file=sys.stderr)


def _say_how_held(held: Protection, words: Words) -> None:
    """Before a script is started for its help alone."""
    from flatout.cli import protected

    for sentence in (words("run.asks-help"), *protected.sentences(held, words, allow_network=False)):
        _say(sentence)


def _bisect(finished: Finished, wanted: Wanted, environ: Mapping[str, str], words: Words) -> None:
    """Which knob the script fails under, found by running it again; it ends as it ended the first time."""
    from flatout.launch import bisect

    try:
        found = bisect.search(finished, wanted, environ, lambda count: _say(words("bisect.run", count=count)))
        knobs = words("run.comma").join(f"{name}={value}" for name, value in found.knobs.items())
        _say(words(f"bisect.{found.verdict}", knobs=knobs, runs=found.runs, folder=found.folder))
    except (FlatoutError, OSError) as error:
        _say(words("bisect.broke-off", detail=str(error)))


def _asked_device(gpu_id: str | None, words: Words) -> dict[str, str]:
    """What the environment needs for `--gpu-id`; without it the driver is not even asked before the script starts."""
    if gpu_id is None:
        return {}
    from flatout.launch import device
    from flatout.machine import nvml

    chosen = device.decide(nvml.driver(), os.environ, gpu_id)
    _say(words(f"choice.{chosen.reason}", **chosen.params))
    return chosen.exports


def _tuner(words: Words, hidden: Sequence[str]) -> AutoTuner:
    from flatout.machine import host
    from flatout.tune.execution.auto_tuning import AutoTuner

    def done(auto: AutoTuning) -> None:
        from flatout.report import run_auto

        _say(run_auto.summary(auto, words))

    usable = host.processor().usable
    return AutoTuner(SystemClock(), usable if isinstance(usable, float) else 1.0, done, hidden)


def _tell(finished: Finished, python: str, words: Words, how: tuple[bool, bool], tuner: AutoTuner | None) -> None:
    # Imported here: the script was not to wait for them.
    from flatout.doctor import after_run
    from flatout.machine import facts
    from flatout.measure.summary import summarise
    from flatout.report import doctor as findings_report
    from flatout.report import run as report
    from flatout.report.terminal import show

    as_json, quiet = how
    summary = summarise(finished, facts.machine(interpreter.describe(python)))
    summary.auto = tuner.told() if tuner is not None else None
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
