"""What bounds the watched training, and what the doctor says of it: the rules over a finished run, on what is told by now."""

from __future__ import annotations

from pathlib import Path

from flatout.base import records
from flatout.base.errors import FlatoutError
from flatout.base.records import Missing, Struct
from flatout.base.words import Words
from flatout.doctor import after_run, page
from flatout.doctor.model import Finding
from flatout.launch import journals
from flatout.launch.run import Finished
from flatout.machine import facts, host
from flatout.machine.machine_facts import Interpreter, Machine
from flatout.measure.model import Summary
from flatout.measure.summary import summarise
from flatout.report import run_device
from flatout.report.doctor import finding_json
from flatout.watch.follow import SUMMARY, Training, spawned_at
from flatout.watch.session import Verdict

MOST_FINDINGS = 4  # one screen; the record has them all
FEWEST_STEPS = after_run.FEWEST_STEPS


class Judged(Struct, kw_only=True):
    summary: Summary
    findings: list[Finding]

    @property
    def verdict(self) -> Verdict:
        evidence = dict(self.summary.bound_evidence)
        return Verdict(bound_by=self.summary.bound_by, evidence=evidence, findings=list(map(finding_json, self.findings)))


def judge(folder: Path, training: Training, machine: Machine | None = None) -> Judged | None:
    """None where its record cannot be read, or it is too young to be judged. `machine`: where it was asked before."""
    if training.steps < FEWEST_STEPS:
        return None
    try:
        summary = _written(folder) or _so_far(folder, training, machine or machine_now())
        return Judged(summary=summary, findings=after_run.findings(summary))
    except (OSError, FlatoutError):
        return None


def said(judged: Judged, words: Words) -> list[str]:
    """In the words of the table of `flatout run`: bound by what, what is wrong, and the first step of its repair."""
    bound = run_device.bound_line(judged.summary, words)
    lines = [bound] if bound else []
    for finding in judged.findings[:MOST_FINDINGS]:
        sheet = page.read(finding.code, words.language)
        lines.append(f"! {finding.code} {sheet.sentence(dict(finding.evidence))}")
        lines += [f"  {sheet.step(fix)}" for fix in finding.fix[:1]]
        lines.append(f"  {words('doctor.more', code=finding.code)}")
    return lines or [words("watch.nothing-found")]


def _written(folder: Path) -> Summary | None:
    file = folder / SUMMARY
    return records.read(file, Summary) if file.exists() else None


def machine_now() -> Machine:
    return facts.machine(Interpreter())


def _so_far(folder: Path, training: Training, machine: Machine) -> Summary:
    """As if it had ended with what its journals tell by now."""
    began = spawned_at(folder, training.last_told or 0.0)
    line = host.command_line(training.pid) if isinstance(training.pid, int) else Missing("no-steps")
    finished = Finished(
        run_id=folder.name,
        folder=str(folder),
        command=[] if isinstance(line, Missing) else line,
        started=began,
        wall_s=max(0.0, (training.last_told or began) - began),
        returncode=0,
        journals=journals.read(folder),
    )
    return summarise(finished, machine)
