"""AP504 dataloader-bottleneck: the GPU waits while batches are made."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import any_nvidia_gpu, gpus, in_container, known, number, saturated, slowed, symptom
from flatout.doctor.remedy import observe, worker_count
from flatout.machine.machine_facts import Facts

# A card that computes all the time shows more; below it something keeps it waiting.
BUSY_PERCENT = 70

# One core drives the training itself, so with fewer than this for each card nothing is left to load with.
CORES_PER_CARD = 2

# Twice as many workers as cores only take turns (waiting for disks earns the factor of two).
WORKERS_PER_CORE = 2


# Of the training time: less is lost in the noise of what a larger loader costs elsewhere.
WAITING_SHARE = 0.2


def check(facts: Facts) -> Finding | None:
    return _measured(facts) or _told(facts)


def _measured(facts: Facts) -> Finding | None:
    """A run has seen the training wait: the loader it waited for longest, and where it is made."""
    run = facts.application.run
    share = run.shares.get("input", 0.0)
    if share < WAITING_SHARE or not run.loaders or saturated(facts):
        return None
    worst = max(run.loaders, key=lambda use: use.wait_s)
    workers = known(worst.workers)
    return RULE.found(
        *_fix(facts, workers, "measured"),
        severity=Severity.SLOW,
        site=worst.site,
        workers=worst.workers,
        share=round(100 * share),
        wait_ms_a_batch=round(1e3 * worst.wait_s / worst.batches, 2) if worst.batches else None,
        usable_cores=known(facts.processor.usable),
    )


def _told(facts: Facts) -> Finding | None:
    script = facts.application.script
    workers = 0 if symptom(facts, "workers-zero") else known(script.workers)
    reason, certain = _reason(facts, workers)
    if reason is None or _no_card(facts):
        return None
    return RULE.found(
        *_fix(facts, workers, reason),
        # Read off the source and not seen to hurt: worth knowing, but a compute-bound loop does well with it.
        severity=Severity.SLOW if symptom(facts, "loader-waits", "low-utilisation", "workers-zero") else Severity.NOTE,
        certain=certain,
        reason=reason,
        workers=workers,
        line=script.lines.get("workers") if known(script.workers) == workers else None,
        usable_cores=known(facts.processor.usable),
        utilisation=number(symptom(facts, "low-utilisation"), "percent"),
    )


def _reason(facts: Facts, workers: int | None) -> tuple[str | None, bool]:
    """Why the loader is to blame, and whether that was seen or merely fits."""
    waits, idle = symptom(facts, "loader-waits"), _idle(facts)
    cores, cards = known(facts.processor.usable), max(1, len(gpus(facts)))
    if workers == 0 and (waits or idle):
        return "no-workers", True
    if waits:
        return "waits", not symptom(facts, "healthy-remark")
    if workers == 0 and symptom(facts, "spawn-bootstrapping") is None:
        return "no-workers", False
    if workers and cores and workers > WORKERS_PER_CORE * cores + 1:
        return "too-many-workers", False
    if idle and cores and cores < CORES_PER_CARD * cards:
        return "few-cores", False
    # Idle, nothing known of the loader, nothing else that slows: of all causes the loader is by far the most frequent.
    return ("likely", False) if idle and workers is None and not slowed(facts) else (None, False)


def _no_card(facts: Facts) -> bool:
    """On a machine without any card nothing waits."""
    return facts.source == "probed" and not gpus(facts) and any_nvidia_gpu(facts) is None and facts.torch.available is not True


def _idle(facts: Facts) -> bool:
    found = symptom(facts, "low-utilisation")
    percent = number(found, "percent")
    if found is None or symptom(facts, "healthy-remark"):
        return False
    return percent is None or 0 < percent < BUSY_PERCENT  # at 0 % the program does not use the card at all


def _fix(facts: Facts, workers: int | None, reason: str) -> list[Fix]:
    count = worker_count(facts)
    steps = [Fix(text="workers", params={"count": count})]
    if workers or reason == "few-cores":
        steps = [Fix(text="fewer" if reason == "too-many-workers" else "cores", params={"count": count})]
    if facts.application.script.main_guard is False:
        steps.append(Fix(text="guard-first"))
    if in_container(facts):
        steps.append(Fix(text="shm"))
    return [*steps, *observe(facts)]


RULE = Rule(
    code="AP504",
    name="dataloader-bottleneck",
    layer=Layer.APPLICATION,
    check=check,
    explains=("low-utilisation", "performance-falling"),
    knobs=("workers", "persistent_workers", "prefetch_factor"),
)
