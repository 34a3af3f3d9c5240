"""`flatout tune SCRIPT ARGS`: the measured search inside the running script, and the profile that it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from flatout.base import records
from flatout.base.clock import SystemClock
from flatout.base.errors import UsageError
from flatout.base.words import Words
from flatout.cli import batch_flags, parity_gate, protected, smaller_start, tune_config, whole_runs
from flatout.cli.batch_flags import batch_options
from flatout.cli.commandline import (
    UNPROCESSED,
    Context,
    argument,
    option,
    options_of,
    pass_context,
    words_of,
    words_typed,
    write_record,
)
from flatout.cli.commandline import command as make_command
from flatout.cli.knob_flags import check_memory_share
from flatout.cli.tune_stopped import go_on_with, unharmed
from flatout.knobs import values
from flatout.knobs.model import Numerics
from flatout.launch import folder, interpreter, target

if TYPE_CHECKING:
    from flatout.cli.smaller_start import Smaller
    from flatout.tune.execution.search_journal import About
    from flatout.tune.execution.trial_runner import Trials
    from flatout.tune.search.questions_and_answers import Decision, Finished, Plan, Progress
    from flatout.tune.search.time_budget import Budget, Costs

BUDGET_GROW = "4m"  # each pair of the last comparison is two starts, and what is kept is compiled for the new batch
LOAD_LOOK_S, LOADED = 0.5, 0.25  # so long, and this share of the cores that a search may use
PROGRESS_EVERY_S = 10.0  # a line of it, where there is no terminal
ENOUGH = 2.0  # times what one comparison takes: what is named where the budget has no room for it
PUT_OFF = ("no-time",)  # it may have its turn later: said at the end, if it had none
UNSAID = ("not-chosen",)  # whoever says --only knows what was left out; it stands in the record
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
LONGEST_S = 366 * 24 * 3600.0
MOST_STEPS = 10**15


@make_command(name="tune", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@tune_config.options
@option("--python", metavar="PATH", help="python")
@option("--budget", metavar="TIME", help="tune-budget")
@option("--steps-planned", type=int, metavar="N", help="tune-steps-planned")
@option("--only", multiple=True, metavar="KNOB", help="tune-only")
@option("--skip", multiple=True, metavar="KNOB", help="tune-skip")
@option("--allow", default="tolerance", metavar="CLASS", help="tune-allow")
@batch_options
@option("--gpu-memory-fraction", type=float, metavar="SHARE", help="gpu-memory-fraction")
@option("--resume", metavar="FOLDER", help="tune-resume")
@option("--dry-run", is_flag=True, help="tune-dry-run")
@option("--allow-network", is_flag=True, help="tune-allow-network")
@option("--no-sandbox", is_flag=True, help="tune-no-sandbox")
@option("--no-parity", is_flag=True, help="tune-no-parity")
@option("--json", "as_json", is_flag=True, help="json")
@argument("script", nargs=-1, type=UNPROCESSED, metavar="SCRIPT [ARGS]...")
@pass_context
def command(context: Context, /, script: tuple[str, ...], **asked: Any) -> None:
    screen = Screen(sys.stderr, words_of(context))
    check_memory_share(asked["gpu_memory_fraction"])
    if asked["steps_planned"] is not None and not 0 < asked["steps_planned"] <= MOST_STEPS:
        raise UsageError("error.steps-planned", value=asked["steps_planned"], most=MOST_STEPS)
    task = tune_config.begin(script, asked, screen)
    if task is not None and not script:
        sys.exit(task.estimate())
    limits = {
        "budget_s": _asked_s(asked),
        "steps_planned": asked["steps_planned"],
        "only": _all_known(asked["only"], "--only"),
        "skip": _all_known(asked["skip"], "--skip"),
        "allow": _class(asked["allow"]),
    }
    asked["batch_wanted"] = batch_flags.wanted(asked)
    path, _ = interpreter.choose(asked["python"], os.environ)
    line = target.command_line(path, task.command() if task else script, options_of(context))
    place = _place(asked["resume"], line)
    asked["task"], asked["conclude"] = task, task.conclude if task else _conclude
    again = go_on_with(words_typed(context), script, place)

    def work() -> int:
        with task or contextlib.nullcontext():
            exploring = task is not None and task.exploring
            return task.explore(place) if task and exploring else _under_protection(line, place, limits, asked, screen)

    sys.exit(unharmed(work, place, again, screen.words, screen.say))


def _place(resumed: str | None, line: list[str]) -> Path:
    """Of the record. What cannot be gone on from is said before anything is started."""
    from flatout.tune.execution.session import resumable

    if resumed is None:
        return folder.new_run(Path.cwd(), SystemClock().wall())[1]
    resumable(Path(resumed), _about(line))
    return Path(resumed)


def _about(line: list[str]) -> About:
    from flatout._version import __version__
    from flatout.base.secrets import hide
    from flatout.tune.execution.kept_profile import digest_of
    from flatout.tune.execution.search_journal import About

    return About(command=hide(line[1:]), script=digest_of(target.script_file(line[1:])), version=__version__)


def _asked_s(asked: dict[str, Any]) -> float | None:
    """None: as long as the planned run is worth."""
    text = asked["budget"] or (BUDGET_GROW if asked["batch"] == "grow" else None)
    return seconds_of(text) if text else None


def seconds_of(text: str) -> float:
    """ "90", "90s", "5m", "1h" in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip().lower())
    seconds = float(match[1]) * UNITS[match[2]] if match is not None else 0.0
    if not 0 < seconds <= LONGEST_S:
        raise UsageError("error.budget", value=text)
    return seconds


def _all_known(given: Sequence[str], where: str) -> list[str]:
    """Given several times, or several at once with commas between them."""
    return [values.known(name, where).name for names in given for name in names.split(",") if name.strip()]


def _class(name: str) -> Numerics:
    try:
        return Numerics(name)
    except ValueError as error:
        raise UsageError("error.numerics-class", value=name, known=", ".join(Numerics)) from error


class Screen:
    """Decisions as lines; below them, on a terminal, one line that says what is tried and how long it will take."""

    def __init__(self, stream: TextIO, words: Words) -> None:
        self.stream = stream
        self.words = words
        self._live = stream.isatty()
        self._clock = SystemClock()
        self._progressed = self._clock.monotonic()

    def say(self, sentence: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._wipe()
            print(sentence, file=self.stream, flush=True)

    def watch(self, now: Progress, fresh: list[Decision]) -> None:
        from flatout.report import tune as report
        from flatout.report.terminal import show

        with contextlib.suppress(OSError, ValueError):  # whoever read it is gone: the search goes on for its record
            self._wipe()
            for decision in fresh:
                if decision.code not in (*UNSAID, *PUT_OFF):
                    show(self.stream, report.line(decision, self.words))
            if self._live:
                self.stream.write(report.progress(now, self.words)[:100])
                self.stream.flush()
            elif self._clock.monotonic() - self._progressed >= PROGRESS_EVERY_S:
                self._progressed = self._clock.monotonic()
                print(f"  {report.progress(now, self.words)}", file=self.stream, flush=True)

    def had_no_turn(self, decisions: Sequence[Decision], enough: str) -> None:
        """What was put off, and stayed so; `enough`: the --budget that has time for it."""
        from flatout.report import tune as report

        left = [decision for decision in decisions if decision.code in PUT_OFF]
        if left:
            self.say(report.not_tried(left, enough, self.words))

    def hint(self, sentence: str) -> None:
        """Only where it can be wiped away again."""
        with contextlib.suppress(OSError, ValueError):
            self._wipe()
            if self._live:
                self.stream.write(sentence[:100])
                self.stream.flush()

    def show(self, renderable: Any) -> None:
        from flatout.report.terminal import show

        with contextlib.suppress(OSError, ValueError):
            self._wipe()
            show(self.stream, renderable)

    def _wipe(self) -> None:
        if self._live:
            self.stream.write("\r\x1b[K")


def _under_protection(line: list[str], place: Path, limits: dict[str, Any], asked: dict[str, Any], screen: Screen) -> int:
    from flatout.launch.scratch import sweep
    from flatout.machine import nvml
    from flatout.tune.execution.card_readings import CardMeter
    from flatout.tune.execution.trial_runner import Trials

    sweep()
    with protected.protection_for(line, asked) as protection:
        for sentence in protected.sentences(protection, screen.words, asked["allow_network"]):
            screen.say(sentence)
        if asked["batch_wanted"] is not None and not asked["resume"]:
            batch_flags.look_for_arguments(asked["batch_wanted"], line, protection, os.environ, asked["task"])
        _say_load(screen)
        screen.say(screen.words("tune.looking"))
        log = place / "trials.log"
        with (
            Trials(line, os.environ, protection, SystemClock(), log, asked["gpu_memory_fraction"]) as trials,
            nvml.looks() as look,
        ):
            trials.cards = CardMeter(look)
            trials.patience.keep_to(limits["budget_s"])
            trials.at_size = asked["task"].at_size if asked["task"] else None
            code = _search(trials, place, limits, asked, screen, line)
            new = protected.new_files(trials.new_files(), screen.words)
            for sentence in [*protected.afterwards(protection, screen.words), *new]:
                screen.say(sentence)
            return 1 if new and code == 0 else code


def _say_load(screen: Screen) -> None:
    """Before anything of ours runs: what is busy now is the work of others, and will be in every comparison."""
    from flatout.machine import host

    busy, cores = host.busy_cores(LOAD_LOOK_S), _cores()
    if isinstance(busy, float) and busy >= LOADED * cores:
        screen.say(screen.words("tune.loaded", busy=busy, cores=cores))


def _search(trials: Trials, place: Path, limits: dict[str, Any], asked: dict[str, Any], screen: Screen, line: list[str]) -> int:
    from flatout.report import tune as report
    from flatout.tune.execution.session import Session
    from flatout.tune.search import run_length, time_budget, too_short_run

    began, resumed = SystemClock().monotonic(), Path(asked["resume"]) if asked["resume"] else None
    ready, smaller = smaller_start.look(trials, line, asked["batch_wanted"], resumed)
    looked_s = SystemClock().monotonic() - began
    limits["looked_s"] = trials.start_s  # the last one alone: it is the price of another
    if ready is None:
        screen.say(screen.words(f"tune-nothing.{trials.nothing.code}", **trials.nothing.details, log=str(place / "trials.log")))
        return 1
    if smaller is not None:
        screen.say(screen.words("tune.smaller-start", size=smaller.size))
    length = run_length.find_length(line, limits["steps_planned"], ready, Path.cwd())
    if length is not None:
        screen.say(report.run_length(length, screen.words))
        limits["steps_planned"] = length.steps
    costs = time_budget.Costs(looked_s=looked_s, start_s=trials.start_s, step_s=ready.get("step_s") or 0.0)
    if limits["budget_s"] is None and not any(asked[name] for name in ("task", "batch_wanted", "resume", "dry_run")):
        short_s = too_short_run.loop_s(line, length, costs, ready, Path.cwd())
        if short_s is not None:
            screen.say(screen.words("tune.ended-too-short-to-repay", loop=report.duration(short_s)))
            return _conclude(too_short_run.nothing_to_do(looked_s), ready, place, line, asked, screen)
    granted = time_budget.budget(limits["budget_s"], costs, limits["steps_planned"], ready)
    asked_s, limits["budget_s"] = limits["budget_s"], granted.search_s
    will_confirm = granted.confirm_s > 0 and smaller is None
    plan = None if asked["resume"] else _plan(ready, {**limits, "whole_runs_follow": will_confirm}, asked, smaller)
    if plan is not None and asked["dry_run"]:
        _only_said(plan, bool(asked["as_json"]), screen)
        return 0
    _say_budget(granted, costs, plan, asked_s, screen, parity=not asked["no_parity"])
    searching = SystemClock().monotonic()
    with Session(place, plan, _about(line)) as session:
        if session.resumed:
            screen.say(screen.words("tune.resumed", count=session.resumed))
        assert session.plan is not None
        trials.patience.search_begins(session.plan.budget_s)
        end = session.run(trials, screen.watch)
    trials.stop()
    trials.patience.search_is_over()
    if trials.limit is not None:
        screen.say(screen.words(f"tune-nothing.{trials.limit[0]}", **trials.limit[1]))
    room_s = time_budget.room_s(granted, SystemClock().monotonic() - searching, sum(end.build_s.values()))
    screen.had_no_turn(end.decisions, _enough_for_all(end, granted, costs))
    screen.show(report.ending(end, screen.words, str(place / "trials.log")))
    room = whole_runs.Room(granted, costs, room_s)
    starts = smaller is None
    confirm = partial(whole_runs.confirmed, trials=trials, screen=screen, length=length, line=line, own_starts=starts)
    end, room = whole_runs.confirmed_with_time_left(confirm, end, room)
    if not asked["no_parity"]:
        end = parity_gate.checked_if_faster(end, partial(confirm, room=room), trials, place, screen)
    end = records.replace(end, seconds=round(SystemClock().monotonic() - began, 1), budget=granted)
    trials.new_files()  # what is new after this is ours
    concluded: int = asked["conclude"](end, ready, place, line, asked, screen)
    return concluded


def _say_budget(
    granted: Budget, costs: Costs, plan: Plan | None, asked_s: float | None, screen: Screen, *, parity: bool = False
) -> None:
    """How long search and confirmation may take; and where nothing can be compared in it, so."""
    from flatout.report import tune as report
    from flatout.tune.search.search import fewest_s
    from flatout.tune.search.time_budget import to_ask_for

    fewest = fewest_s(plan) if plan is not None else 0.0
    if asked_s is not None and fewest > granted.search_s:
        told = {"looked": report.duration(costs.looked_s), "budget": report.duration(asked_s)}
        screen.say(screen.words("tune-budget.too-small", **told, enough=to_ask_for(costs, ENOUGH * fewest)))
    elif granted.confirm_s or asked_s is None:
        screen.say(report.budget(granted, screen.words, to_ask_for(costs, granted.search_s)))
    if parity and asked_s is None:
        screen.say(screen.words("tune-budget.loss-curves", parity=report.duration(parity_gate.expected_s(costs))))


def _enough_for_all(end: Finished, granted: Budget, costs: Costs) -> str:
    """The --budget with which what was put off would have its turn."""
    from flatout.tune.search.time_budget import to_ask_for

    needs = [one.params.get("needs_s") for one in end.decisions if one.code in PUT_OFF]
    return to_ask_for(costs, granted.search_s + sum(float(seconds) for seconds in needs if seconds is not None))


def _only_said(plan: Plan, as_json: bool, screen: Screen) -> None:
    from flatout.report.tune import line
    from flatout.tune.search.search import foreseen

    tried, decided = foreseen(plan)
    for offer in tried:
        screen.say(f"  {offer.knob}: {', '.join(offer.values) or '…'} ({offer.numerics})")
    for one in decided:
        if one.code not in UNSAID:
            screen.show(line(one, screen.words))
    if as_json:
        told = [{"knob": offer.knob, "values": offer.values, "numerics": offer.numerics} for offer in tried]
        left = [{"knob": one.knob, "value": one.value, "code": one.code, "params": one.params} for one in decided]
        write_record(json.dumps({"would_try": told, "decided": left}, indent=2) + "\n")


def _plan(ready: dict[str, Any], limits: dict[str, Any], asked: dict[str, Any], smaller: Smaller | None) -> Plan:
    from flatout.tune.search import what_to_try as planning

    batch = batch_flags.for_the_plan(asked["batch_wanted"], ready, smaller.own if smaller is not None else None)
    return planning.make(ready, _cores(), **limits, **batch)


def _conclude(end: Finished, ready: dict[str, Any], place: Path, line: list[str], asked: dict[str, Any], screen: Screen) -> int:
    from flatout.tune.execution import kept_profile

    end = batch_flags.with_command(end, line)
    records.write(place / "tune.json", end)
    for sentence in batch_flags.sentences(end.batch, screen.words):
        screen.say(sentence)
    if end.profile:
        path = kept_profile.write_profile(end, ready, line, SystemClock().wall())
        screen.say(screen.words("tune.profile", path=str(path), script=target.as_typed(line[1:])))
        _show_edits(end, ready, line, screen)
    else:
        screen.say(screen.words("tune.no-profile"))
    screen.say(screen.words("tune.record", path=str(place / "tune.json")))
    if asked["as_json"]:
        write_record(json.dumps(kept_profile.answer(end), indent=2) + "\n")
    return 1 if end.ending in ("baseline-fails", "too-short", "no-batch-holds") else 0


def _show_edits(end: Finished, ready: dict[str, Any], line: list[str], screen: Screen) -> None:
    from flatout.report import tune as report
    from flatout.tune.execution import permanent_edits

    script = target.script_file(line[1:])
    if script is None:
        return
    source = script.read_text(encoding="utf-8", errors="replace")
    found = permanent_edits.edits(
        end.profile, script.name if script.is_absolute() else str(script), source, ready, str(ready.get("device", "cuda"))
    )
    if found:
        screen.show(report.permanent(found, screen.words))


def _cores() -> float:
    from flatout.machine import host

    usable = host.processor().usable
    return usable if isinstance(usable, float) else 1.0
