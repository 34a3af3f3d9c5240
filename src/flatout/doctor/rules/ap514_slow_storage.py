"""AP514 slow-storage: the data come from a disk or network that cannot keep up."""

from __future__ import annotations

import re

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import known, said, symptom
from flatout.doctor.remedy import observe
from flatout.machine.machine_facts import Facts

# Windows' drives inside WSL: every file is fetched through a network protocol, ten times slower than WSL's own disk.
WINDOWS_DRIVE = re.compile(r"/mnt/[a-z]/")

# The training waits for data, and for most of the run some program waited for a disk.
WAITING_SHARE, STALLED_SHARE = 0.3, 0.5

# The figure is of all programs here: only above it is the disk taken for the cause, and the loader for its victim.
DECISIVE_SHARE = 0.7


def check(facts: Facts) -> Finding | None:
    return _measured(facts) or _told(facts)


def _measured(facts: Facts) -> Finding | None:
    run = facts.application.run
    waits, wall, stalled = run.shares.get("input", 0.0), known(run.wall_s), known(run.host.io_stalled_s)
    if waits < WAITING_SHARE or stalled is None or not wall or stalled / wall < STALLED_SHARE:
        return None
    # One process that reads and decodes hides what the disk could give: the loader comes first then.
    if all(known(use.workers) == 0 for use in run.loaders):
        return None
    return RULE.found(
        Fix(text="local"),
        Fix(text="fewer-files"),
        Fix(text="cache"),
        severity=Severity.SLOW if stalled / wall >= DECISIVE_SHARE else Severity.NOTE,
        certain=False,
        share=round(100 * waits),
        stalled=round(100 * min(1.0, stalled / wall)),
    )


def _told(facts: Facts) -> Finding | None:
    path = known(facts.application.script.path) or known(facts.application.run.script) or ""
    across = facts.system.wsl is True and WINDOWS_DRIVE.match(path) is not None
    told = symptom(facts, "slow-storage") is not None
    if not told and not across:
        return None
    # One process that reads and decodes hides what the disk could give: workers first.
    single = symptom(facts, "workers-zero") is not None or facts.application.script.workers == 0
    return RULE.found(
        *([Fix(text="wsl-disk")] if facts.system.wsl is True else []),
        Fix(text="local"),
        Fix(text="fewer-files"),
        Fix(text="cache"),
        *observe(facts),
        severity=Severity.SLOW if told and not single else Severity.NOTE,
        certain=told and not single,
        path=path or None,
        symptom=said(facts, "slow-storage"),
    )


RULE = Rule(
    code="AP514",
    name="slow-storage",
    layer=Layer.APPLICATION,
    check=check,
    explains=("dataloader-bottleneck", "low-utilisation"),
    knobs=("workers", "prefetch_factor"),
)
