"""AP506 shared-memory: workers hand batches over through /dev/shm, and it is too small."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import gib, in_container, known, said, symptom
from flatout.machine.machine_facts import Facts

# Docker's default is 64 MB: one batch of 64 images (38 MB) for each of two workers does not fit.
TOO_SMALL = 128 << 20

# Below this a few workers with common batches can run out; the same line as DeepSpeed draws.
SMALL = 512 << 20

# Each tensor that is under way holds a file open; common limits of 1024 are reached by large batches of many parts.
FEW_FILES = 4096

EXHAUSTED = ("bus-error-in-worker", "shared-memory-exhausted")


def check(facts: Facts) -> Finding | None:
    application, workers = facts.application, known(facts.application.script.workers)
    told = symptom(facts, *EXHAUSTED)
    size, free = known(application.shm_bytes), known(application.shm_free_bytes)
    room = min((value for value in (size, free) if value is not None), default=None)
    if told:
        roomy = room is not None and room >= SMALL
        exhausted = told.code == "shared-memory-exhausted"
        return _found(facts, room, severity=Severity.FAULT, certain=exhausted or not roomy)
    if room is None or room >= SMALL or workers == 0 or not in_container(facts):
        return None
    if workers and room < TOO_SMALL:
        return _found(facts, room, severity=Severity.FAULT, certain=False)
    return _found(facts, room, severity=Severity.NOTE, certain=False)


def _found(facts: Facts, room: int | None, severity: Severity, certain: bool) -> Finding:
    few = (known(facts.application.open_files_limit) or FEW_FILES) < FEW_FILES
    steps = [*_enlarge(facts), Fix(text="fewer")]
    if few:
        steps += [Fix(text="files"), Fix(command="ulimit -n 65535")]
    return RULE.found(
        *steps,
        severity=severity,
        certain=certain,
        shm_gib=gib(room),
        container=known(facts.system.container),
        workers=known(facts.application.script.workers),
        open_files_limit=known(facts.application.open_files_limit) if few else None,
        symptom=said(facts, *EXHAUSTED),
    )


def _enlarge(facts: Facts) -> list[Fix]:
    container = known(facts.system.container)
    if container == "kubernetes":
        return [Fix(text="kubernetes")]
    if container == "none":
        return [Fix(command="sudo mount -o remount,size=8G /dev/shm")]
    tool = "podman" if container == "podman" else "docker"
    return [Fix(text="start-again"), Fix(command=f"{tool} run --shm-size=8g ..."), Fix(text="compose")]


RULE = Rule(
    code="AP506",
    name="shared-memory",
    layer=Layer.APPLICATION,
    check=check,
    explains=("pin-memory-thread", "dataloader-bottleneck"),
)
