"""What is worth trying on this machine with this script: from the catalogue and a first look to a plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from flatout.base.records import replace
from flatout.knobs.catalogue import KNOBS, RECORDED
from flatout.knobs.model import Bound, Knob, Numerics, Switch
from flatout.tune.batch.command_line import BatchLine
from flatout.tune.search.agent_answers import outcome_of
from flatout.tune.search.questions_and_answers import BatchGoal, Offer, Plan
from flatout.tune.search.run_length import steps_of_an_epoch

# In the order of trial. Values that are tried; what the script or the machine decides is left out.
ON_A_GPU = {
    "precision": ("bf16",),
    "tf32": ("on",),
    "channels_last": ("on",),
    "fused_optimizer": ("on",),
    "cudnn_benchmark": ("on",),
    "compile": ("default", "reduce-overhead", RECORDED),
    "workers": (),
    "pin_memory": ("on",),
    "non_blocking": ("on",),
    "device_prefetch": ("on",),
    "persistent_workers": ("on",),
    "prefetch_factor": ("4",),
}
ON_A_CPU = {
    "cpu_threads": (),
    "channels_last": ("on",),
    "fused_optimizer": ("on",),
    "precision": ("bf16",),  # slower but on the newest processors
    "compile": ("default",),
    "workers": (),
    "persistent_workers": ("on",),
    "prefetch_factor": ("4",),
}
INPUT_SIDE = frozenset({Bound.INPUT, Bound.COPY})  # nothing to turn where the script trains from no DataLoader
LEAST = {"exact": 0, "resampled": 1, "tolerance": 2, "training": 3}


# What `run --auto` tries, where it is exact for the script.
EXACT_KNOBS = {
    "workers": (),
    "persistent_workers": ("on",),
    "prefetch_factor": ("4",),
    "pin_memory": ("on",),
    "non_blocking": ("on",),
    "device_prefetch": ("on",),
    "gc_policy": ("on",),
}
ON_A_CARD = ("pin_memory", "non_blocking", "device_prefetch")

HEADROOM, HEADROOM_WINDOWS = 0.08, 0.15  # Windows spills into the host's memory instead of failing, and is slow then
HEADROOM_CAPPED = 0.04  # below a cap nobody else takes anything away: what remains is for the allocator's own pieces
MOST_BATCH = 65536
MANY_CORES, OWN_THREADS = 8, 2
FEWEST_AN_EPOCH = 4  # steps: a batch that leaves fewer is not looked for


def make(
    ready: Mapping[str, Any],
    usable_cores: float,
    batch: BatchGoal = BatchGoal.KEEP,
    batch_line: BatchLine | None = None,
    **limits: Any,
) -> Plan:
    """`limits` are the user's: budget_s, steps_planned, only, skip, allow; and looked_s, which the first child took."""
    on_gpu = ready.get("device") == "cuda"
    by_name = {knob.name: knob for knob in KNOBS}
    tried = ON_A_GPU if on_gpu else ON_A_CPU
    own = batch_line.own if batch_line is not None else ready.get("batch_size")
    has_loader, epoch = bool(ready.get("loaders", True)), steps_of_an_epoch(ready)
    wanted = [name for name in tried if has_loader or not INPUT_SIDE & set(by_name[name].cures)]
    values = {**tried, "cpu_threads": fewer_threads(ready.get("threads"))}
    offers = [_offer(by_name[name], list(values[name]), ready) for name in wanted if name != "cpu_threads" or values[name]]
    if batch is not BatchGoal.KEEP:
        offers.append(_offer(by_name["batch_size"], [], ready))
    return Plan(
        offers=offers,
        worker_cap=_worker_cap(usable_cores, on_gpu),
        workers=int(ready.get("workers") or 0),
        epoch_steps=max(1, round(epoch)) if epoch else None,
        has_loader=has_loader,
        batch=batch,
        batch_size=own,
        batch_line=batch_line,
        batch_limit=_batch_limit(ready, own, limits.get("batch_too_large")),
        memory_limit=ready.get("memory_limit"),
        headroom=_headroom(bool(ready.get("memory_capped"))),
        timed_s=0.5,
        step_s=ready.get("step_s"),
        warm_steps=4 if on_gpu else 3,
        **limits,
    )


def make_exact(ready: Mapping[str, Any], usable_cores: float, **limits: float) -> Plan:
    """For a real training: only what the agent found to be exact for it."""
    by_name = {knob.name: knob for knob in KNOBS}
    found = ready.get("numerics") or {}
    names = [name for name in EXACT_KNOBS if name in found and (ready.get("device") == "cuda" or name not in ON_A_CARD)]
    return Plan(
        offers=[
            replace(_offer(by_name[name], list(EXACT_KNOBS[name]), ready), numerics=Numerics(found[name])) for name in names
        ],
        allow=Numerics.EXACT,
        worker_cap=_worker_cap(usable_cores, ready.get("device") == "cuda"),
        workers=int(ready.get("workers") or 0),
        **limits,  # type: ignore[arg-type]
    )


def fewer_threads(now: int | None) -> tuple[str, ...]:
    """Half of them and one alone: small operations gain nothing from a second thread and wait for it all the same."""
    return tuple(dict.fromkeys(str(count) for count in ((now or 1) // 2, 1) if 0 < count < (now or 1)))


def _worker_cap(usable_cores: float, on_gpu: bool) -> int:
    """The thread that launches and the one that receives want a core each where there are many: with a worker on every core the
    loader by itself gives more, and the training less."""
    cores = max(1, int(usable_cores))
    return cores - OWN_THREADS if on_gpu and cores >= MANY_CORES else cores


def _headroom(capped: bool) -> float:
    if capped:
        return HEADROOM_CAPPED
    return HEADROOM_WINDOWS if sys.platform == "win32" else HEADROOM


def _batch_limit(ready: Mapping[str, Any], own: int | None, too_large: int | None) -> int:
    """In the units of the script's argument, which may count per device."""
    if too_large:
        return min(too_large - 1, _batch_limit(ready, own, None))
    samples, loader = ready.get("samples") or 0, ready.get("batch_size") or 0
    if not samples or not loader:
        return MOST_BATCH
    return max(1, min(MOST_BATCH, samples // FEWEST_AN_EPOCH * (own or loader) // loader))


def _offer(knob: Knob, values: list[str], ready: Mapping[str, Any]) -> Offer:
    """With the class that the agent found for this script, where that is milder than the worst case."""
    found = (ready.get("numerics") or {}).get(knob.name)
    worst = knob.numerics
    numerics = Numerics(found) if found and LEAST[found] < LEAST[worst.value] else worst
    return Offer(
        knob=knob.name,
        values=values,
        numerics=numerics,
        restart=knob.switch is Switch.RESTART,
        cures=list(knob.cures),
        builds=knob.name == "compile",
        first_only=knob.name == "precision",
        foretold={value: outcome_of(told) for value, told in (ready.get("foretold") or {}).get(knob.name, {}).items()},
    )
