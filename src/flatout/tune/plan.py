"""What is worth trying on this machine with this script: from the catalogue and a first look to a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.knobs.catalogue import KNOBS
from flatout.knobs.model import Knob, Numerics, Switch
from flatout.tune.model import Offer, Plan

# In the order of trial. Values that are tried; what the script or the machine decides is left out.
ON_A_GPU = {
    "precision": ("bf16",),
    "tf32": ("on",),
    "channels_last": ("on",),
    "fused_optimizer": ("on",),
    "cudnn_benchmark": ("on",),
    "compile": ("default", "reduce-overhead"),
    "workers": (),
    "pin_memory": ("on",),
    "non_blocking": ("on",),
    "persistent_workers": ("on",),
    "prefetch_factor": ("4",),
}
ON_A_CPU = {
    "precision": ("bf16",),
    "channels_last": ("on",),
    "fused_optimizer": ("on",),
    "compile": ("default",),
    "workers": (),
    "persistent_workers": ("on",),
    "prefetch_factor": ("4",),
}
LEAST = {"exact": 0, "resampled": 1, "tolerance": 2, "training": 3}


def make(ready: Mapping[str, Any], usable_cores: float, **limits: Any) -> Plan:
    """`limits` are the user's: budget_s, steps_planned, only, skip, allow."""
    on_gpu = ready.get("device") == "cuda"
    by_name = {knob.name: knob for knob in KNOBS}
    tried = ON_A_GPU if on_gpu else ON_A_CPU
    return Plan(
        offers=[_offer(by_name[name], list(values), ready) for name, values in tried.items()],
        worker_cap=max(1, int(usable_cores)),
        workers=int(ready.get("workers") or 0),
        epoch_steps=min((length for length in ready.get("loaders") or () if length), default=None),
        batch_size=ready.get("batch_size"),
        timed_s=0.5,
        warm_steps=4 if on_gpu else 3,
        **limits,
    )


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
    )
