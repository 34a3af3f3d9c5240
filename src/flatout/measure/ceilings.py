"""How fast the parts of a training could be, each by itself, so that a busy device never hides a slow loop.

* What the cores supply: cores / processor time of a sample. They may be fewer than the machine has (affinity, quota).
* What the device could take: samples of a step / its busy time in it, if nothing made it wait.
* MFU: the step's arithmetic at the card's rated peak / the step. Parts in different types count at their own rates.
* Roofline: the same with the rated bandwidth, where moving the bytes takes longer than the arithmetic. The bytes are an upper
  estimate (every operator reads and writes memory), so a share above 1 says that caches and fused kernels help.
"""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.machine.cards import Card
from flatout.machine.deep_look import Arithmetic, Ceilings, DeepLook
from flatout.machine.versions import parse

TERA, GIGA = 1e12, 1e9

# torch's name of a type -> the column of `data/cards.toml`.
RATES = {"float32": "fp32_tflops", "tf32": "tf32_tflops", "bfloat16": "bf16_tflops", "float16": "fp16_tflops"}
FIRST_TF32 = (8, 0)

CARD_UNKNOWN = Missing("card-unknown")


def ceilings(
    deep: DeepLook, cores: float | Missing, batch: float | Missing, step_s: float | Missing, card: Card | None
) -> Ceilings:
    """`batch`: samples of one step in all processes; `step_s`: of the run, without the time of the looks.

    A host that never waits runs ahead of its device, and its steps look shorter than they are: the device's work is the least.
    """
    if not isinstance(step_s, Missing) and not isinstance(deep.busy_per_step_s, Missing):
        step_s = max(step_s, deep.busy_per_step_s)
    found = Ceilings(cores=cores, step_s=step_s, cpu_samples_per_s=supply(deep, cores), gpu_samples_per_s=demand(deep, batch))
    done = deep.arithmetic
    if done is None or isinstance(step_s, Missing):
        why = deep.refused.get("flops", "not-reported") if done is None else "no-steps"
        found.flops_per_s = found.mfu = Missing(why)
        return found
    found.flops_per_s = done.flops / step_s
    found.bytes_per_s_estimated = done.bytes_estimated / step_s
    computing = at_rated_peak(done, card)
    if isinstance(computing, Missing):
        found.mfu = found.peak_flops_per_s = found.roofline = computing
        return found
    found.mfu = computing / step_s
    found.peak_flops_per_s = done.flops / computing
    if card is not None and card.bandwidth_gb_s:
        moving = done.bytes_estimated / (card.bandwidth_gb_s * GIGA)
        found.roofline = max(computing, moving) / step_s
        found.memory_limited = moving > computing
    return found


def supply(deep: DeepLook, cores: float | Missing) -> float | Missing:
    if isinstance(cores, Missing):
        return cores
    if not deep.fetching:
        return Missing("no-batches")
    spent = deep.fetching[0].per_sample_s
    return cores / spent if spent > 0 else Missing("not-reported")


def demand(deep: DeepLook, batch: float | Missing) -> float | Missing:
    if isinstance(batch, Missing):
        return batch
    busy = deep.busy_per_step_s
    if isinstance(busy, Missing):
        return Missing("no-device")
    return batch / busy if busy > 0 else Missing("not-reported")


def at_rated_peak(done: Arithmetic, card: Card | None) -> float | Missing:
    """Seconds that the step's arithmetic would take at the card's rated peaks."""
    if card is None:
        return CARD_UNKNOWN
    total = 0.0
    for dtype, flops in done.by_dtype.items():
        rate = rated(card, dtype)
        if rate is None:
            return Missing("rate-unknown", dtype)
        total += flops / (rate * TERA)
    return total if total > 0 else Missing("not-reported")


def rated(card: Card, dtype: str) -> float | None:
    """TFLOP/s; cards older than TF32 do with their ordinary rate what is allowed to run in it."""
    if dtype == "tf32" and card.capability and parse(card.capability) < FIRST_TF32:
        dtype = "float32"
    column = RATES.get(dtype)
    rate = getattr(card, column) if column else None
    return float(rate) if rate else None


def undisturbed(step_s: float | Missing, steps: int, cost_s: float) -> float | Missing:
    """Seconds a step without what the looks cost: the run's own figure has it spread over all its steps."""
    if isinstance(step_s, Missing) or not steps:
        return step_s
    left = step_s - cost_s / steps
    return left if left > 0 else step_s
