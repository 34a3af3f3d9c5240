"""AP521 hidden-synchronisation: a line of the script reads from the device in every step, and the device runs dry meanwhile."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import known, starved_share
from flatout.machine.machine_facts import Facts
from flatout.machine.run_look import BlockingRead, RunLook

# Of the training time: a loss read once in a while, or a read of what is long done, costs less.
COST_SHARE = 0.05

# Where the device keeps its queue filled in spite of the read, the wait costs nothing: it would compute as long anyway.
DRY_SHARE, BUSY_SHARE = 0.3, 0.7


def check(facts: Facts) -> Finding | None:
    run = facts.application.run
    spent, steps = known(run.training_s), known(run.steps)
    if not run.device.reads or not spent or not steps:
        return None
    worst = max(run.device.reads, key=lambda read: read.total_s)
    waited = sum(read.total_s for read in run.device.reads)
    hurts = _hurts(run)
    if waited / spent < COST_SHARE or hurts is False:
        return None
    return RULE.found(
        *_fix(worst, steps),
        severity=Severity.SLOW if hurts else Severity.NOTE,
        certain=hurts is True,
        call=worst.what if "." in worst.what else f".{worst.what}()",
        site=worst.site,
        ms_a_step=round(1e3 * worst.total_s / steps, 3 if worst.total_s / steps < 1e-4 else 1),
        calls_a_step=round(worst.count / steps, 2),
        share=round(100 * waited / spent),
        lines=len(run.device.reads),
        starved=_percent(starved_share(facts)),
    )


def _hurts(run: RunLook) -> bool | None:
    """Whether the device stands still because of the reads; None where nobody looked at it."""
    device = run.device
    if device.lag is not None and device.lag.samples:
        return device.lag.starved / device.lag.samples >= DRY_SHARE
    if device.busy is not None:
        return device.busy.share < BUSY_SHARE
    return False if run.bound_by in ("compute", "memory") else None


def _fix(worst: BlockingRead, steps: int) -> list[Fix]:
    first = Fix(text="synchronize") if "synchronize" in worst.what else Fix(text="seldom", params={"site": worst.site})
    return [first, Fix(text="on-device"), Fix(text="later")]


def _percent(share: float | None) -> int | None:
    return None if share is None else round(100 * share)


RULE = Rule(
    code="AP521",
    name="hidden-synchronisation",
    layer=Layer.APPLICATION,
    check=check,
    explains=("tiny-kernels", "low-utilisation"),
)
