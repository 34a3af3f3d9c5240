"""AP514 slow-storage: the data come from a disk or network that cannot keep up."""

from __future__ import annotations

import re

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.remedy import observe
from flatout.doctor.seen import known, said, symptom
from flatout.machine.model import Facts

# Windows' drives inside WSL: every file is fetched through a network protocol, ten times slower than WSL's own disk.
WINDOWS_DRIVE = re.compile(r"/mnt/[a-z]/")


def check(facts: Facts) -> Finding | None:
    path = known(facts.application.script.path) or ""
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
)
