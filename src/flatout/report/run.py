"""A run's summary as a table: where the time went."""

from __future__ import annotations

from _flatout_agent.wire import PHASES, TRAINING_PHASES
from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.doctor import page
from flatout.doctor.model import Finding
from flatout.measure.model import Summary
from flatout.report import machine as machine_report
from flatout.report import numbers, run_auto, run_deep, run_device, run_knobs, run_promise
from flatout.report.terminal import Group, RenderableType, Table, Text, bar, hanging

BAR = 28
MOST_SCRIPT_LINES = 3
WORTH_A_LINE = 0.02  # of the wall time
MOST_FINDINGS = 4  # one screen; the record has them all

COLOURS = {
    "startup": "bright_black",
    "settings": "bright_magenta",
    "put-on": "bright_magenta",
    "input": "yellow",
    "copy": "magenta",
    "forward": "green",
    "backward": "green",
    "optimizer": "green",
    "device_wait": "cyan",
    "compile": "bright_magenta",
    "turn": "yellow",
    "validation": "blue",
    "checkpoint": "blue",
    "script": "cyan",
    "shutdown": "bright_black",
    "unexplained": "red",
}


def render(summary: Summary, found: list[Finding], words: Words, record: str) -> RenderableType:
    """`record` is the path of what this was rendered from, for those who want more."""
    parts: list[RenderableType] = [Text(), _title(summary, words), _table(summary, words)]
    parts += [Text(line) for line in (*_figures(summary, words), *_script_lines(summary, words))]
    bound = run_device.bound_line(summary, words)
    parts += [Text(bound, style="bold")] if bound else []
    parts += [Text(line) for line in (run_device.memory_line(summary, words), *run_device.gpu_lines(summary, words)) if line]
    parts += [Text(words(f"note.{note.code}", **note.params), style="yellow") for note in summary.notes]
    parts += run_knobs.lines(summary.knobs, words)
    parts += run_promise.lines(summary, words)
    parts += run_auto.lines(summary.auto, words)
    if summary.out_of_memory is not None:
        parts += run_device.post_mortem(summary.out_of_memory, words)
    if summary.deep is not None:
        parts += run_deep.section(summary.deep, words)
    for finding in found[:MOST_FINDINGS]:
        parts += _finding(finding, words)
    if len(found) > MOST_FINDINGS:
        parts.append(Text(f"  {words('run.more-findings', count=len(found) - MOST_FINDINGS)}", style="bright_black"))
    parts.append(Text(_environment(summary, words), style="bright_black"))
    parts.append(Text(words("run.record", path=record), style="bright_black"))
    return Group(*parts)


def _finding(finding: Finding, words: Words) -> list[RenderableType]:
    """What is wrong and the first step of its repair; the rest is on its page."""
    sheet = page.read(finding.code, words.language)
    sentence = f"{finding.code} {sheet.sentence(dict(finding.evidence))}"
    lines: list[RenderableType] = [hanging("! ", sentence, "bold yellow")]
    lines += [hanging("  ", sheet.step(fix)) for fix in finding.fix[:1]]
    more = [words("doctor.more", code=finding.code)]
    more += [words("run.knobs", names=words("run.comma").join(finding.knobs))] if finding.knobs else []
    return [*lines, Text(f"  {words('run.comma').join(more)}", style="bright_black")]


def _title(summary: Summary, words: Words) -> Text:
    text = Text(words("run.title"), style="bold")
    text.append(f"  {words('run.wall', wall=numbers.seconds(summary.wall_s))}", style="not bold")
    return text


def _table(summary: Summary, words: Words) -> Table:
    table = Table(box=None, padding=(0, 1), show_header=True, header_style="bright_black")
    table.add_column(words("run.phase"))
    table.add_column(words("run.time"), justify="right")
    table.add_column(words("run.share"), justify="right")
    table.add_column("", width=BAR)
    table.add_column(words("run.per-step"), justify="right")
    for name, spent in _rows(summary):
        if not spent and name != "unexplained":
            continue
        share = spent / summary.wall_s if summary.wall_s else 0.0
        per_step = _in_the_loop(name, spent, summary) / summary.steps if summary.steps and name in TRAINING_PHASES else None
        table.add_row(
            words(f"phase.{name}"),
            numbers.seconds(spent),
            numbers.percent(share),
            Text(bar(share, BAR), style=COLOURS[name]),
            "" if per_step is None else numbers.seconds(per_step),
        )
    return table


def _rows(summary: Summary) -> list[tuple[str, float]]:
    """The phases; of flatout's own work putting settings on is told apart."""
    rows = []
    for name in PHASES:
        spent = summary.phases.get(name, 0.0)
        if name == "settings":
            rows.append(("put-on", min(spent, summary.put_on_s)))
            spent = max(0.0, spent - summary.put_on_s)
        rows.append((name, spent))
    return rows


def _script_lines(summary: Summary, words: Words) -> list[str]:
    lines = [line for line in summary.script_lines if line.spent_s >= WORTH_A_LINE * summary.wall_s][:MOST_SCRIPT_LINES]
    told = [words("run.script-line", time=numbers.seconds(line.spent_s), site=run_deep.short(line.site)) for line in lines]
    return [words("run.script-lines", lines=words("run.comma").join(told))] if told else []


def _in_the_loop(name: str, spent: float, summary: Summary) -> float:
    return spent - summary.script_outside_s if name == "script" else spent


def _figures(summary: Summary, words: Words) -> list[str]:
    if not summary.steps:
        return []
    parts = [words("run.steps", count=numbers.count(summary.steps))]
    if not isinstance(summary.samples, Missing):
        parts.append(words("run.samples", count=numbers.count(summary.samples)))
    if not isinstance(summary.samples_per_s, Missing):
        key = "run.rate-warm" if summary.warmup_steps else "run.rate"
        parts.append(words(key, rate=numbers.count(summary.samples_per_s), warmup=summary.warmup_steps))
    if not isinstance(summary.tokens_per_s, Missing):
        parts.append(words("run.token-rate", rate=numbers.count(summary.tokens_per_s)))
    if not isinstance(summary.step_s, Missing):
        parts.append(words("run.step-time", time=numbers.seconds(summary.step_s)))
    if summary.processes > 1:
        parts.append(words("run.processes", count=summary.processes))
    return [words("run.comma").join(parts)]


def _environment(summary: Summary, words: Words) -> str:
    parts = [machine_report.one_line(summary.machine, words)]
    if not isinstance(summary.machine.python.version, Missing):
        parts.append(f"Python {summary.machine.python.version}")
    if not isinstance(summary.torch.version, Missing):
        parts.append(f"torch {summary.torch.version}")
    return ", ".join(parts)
