"""AP527 cpu-contended: the script was ready to run and had to queue for a core."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import known
from flatout.machine.machine_facts import Facts
from flatout.machine.run_look import CoreUse

FEWEST_SECONDS = 2.0
OF_THE_LOOP = 0.15  # of its wall time the training thread stood in the queue
OF_THE_WORK = 0.35  # the workers queued this much for every second on a core, while training waited for data
WAITS_FOR_DATA = 0.3
OWN = 0.8  # of the cores that may be used are busy with the script itself: nobody else is in its way


def check(facts: Facts) -> Finding | None:
    run = facts.application.run
    cores = run.device.cores
    if cores is None or cores.span_s < FEWEST_SECONDS:
        return None
    share = cores.queueing_s / cores.span_s
    workers = _workers_queue(cores)
    held_up = workers >= OF_THE_WORK and run.shares.get("input", 0.0) >= WAITS_FOR_DATA
    if share < OF_THE_LOOP and not held_up:
        return None
    usable = known(facts.processor.usable)
    own = _own_cores(cores)
    itself = isinstance(usable, float) and own >= OWN * usable
    first, then = ("threads", "others") if itself else ("others", "threads")
    return RULE.found(
        Fix(text=first),
        Fix(text=then),
        Fix(text="quota"),
        severity=Severity.SLOW,
        share=round(100 * max(share, run.shares.get("input", 0.0) if held_up else 0.0)),
        queueing_percent=round(100 * share),
        workers_queueing_percent=round(100 * workers),
        own_cores=round(own, 1),
        usable_cores=usable,
    )


def _own_cores(cores: CoreUse) -> float:
    """That the script kept busy. Older records tell of its training thread and of the workers' first threads alone."""
    return (cores.own_s or cores.running_s + cores.workers_running_s) / cores.span_s


def _workers_queue(cores: CoreUse) -> float:
    """Of the time in which the workers wanted a core, the part in which they had none."""
    wanted = cores.workers_running_s + cores.workers_queueing_s
    return cores.workers_queueing_s / wanted if wanted > 0 else 0.0


RULE = Rule(
    code="AP527",
    name="cpu-contended",
    layer=Layer.APPLICATION,
    check=check,
    explains=("dataloader-bottleneck", "tiny-kernels", "performance-falling"),
    knobs=("workers", "cpu_threads"),
)
