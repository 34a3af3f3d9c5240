"""The list of all knobs. A new one is a line here, its page in the catalogue of words, and its file in the agent."""

from __future__ import annotations

from flatout.knobs.model import Bound, Knob, Numerics, Switch

ON_OFF = ("on", "off")
RECORDED = "graphs"  # of compile: its kernels in CUDA graphs, nothing is compiled

KNOBS: tuple[Knob, ...] = (
    Knob(
        name="precision",
        domain=("no", "bf16", "fp16", "auto"),
        default="no",
        numerics=Numerics.TOLERANCE,
        switch=Switch.HOT,
        cures=(Bound.COMPUTE, Bound.MEMORY),
    ),
    Knob(name="tf32", domain=ON_OFF, default="off", numerics=Numerics.TOLERANCE, switch=Switch.HOT, cures=(Bound.COMPUTE,)),
    Knob(
        name="cudnn_benchmark",
        domain=ON_OFF,
        default="off",
        numerics=Numerics.TOLERANCE,
        switch=Switch.RESTART,
        cures=(Bound.COMPUTE,),
    ),
    Knob(
        name="allocator",
        domain=("off", "expandable", "roundup"),
        default="off",
        numerics=Numerics.EXACT,
        switch=Switch.RESTART,
        cures=(Bound.MEMORY,),
    ),
    Knob(
        name="channels_last",
        domain=ON_OFF,
        default="off",
        numerics=Numerics.TOLERANCE,
        switch=Switch.HOT,
        cures=(Bound.COMPUTE, Bound.MEMORY),
    ),
    Knob(
        name="fused_optimizer",
        domain=ON_OFF,
        default="off",
        numerics=Numerics.TOLERANCE,
        switch=Switch.HOT,
        cures=(Bound.LAUNCH, Bound.MEMORY),
    ),
    Knob(
        name="compile",
        domain=("no", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", RECORDED),
        default="no",
        numerics=Numerics.TOLERANCE,
        switch=Switch.HOT,
        cures=(Bound.LAUNCH, Bound.COMPUTE, Bound.MEMORY),
    ),
    Knob(name="workers", domain=("0..64",), default="0", numerics=Numerics.RESAMPLED, switch=Switch.HOT, cures=(Bound.INPUT,)),
    Knob(
        name="persistent_workers",
        domain=ON_OFF,
        default="off",
        numerics=Numerics.RESAMPLED,
        switch=Switch.HOT,
        cures=(Bound.INPUT,),
    ),
    Knob(
        name="prefetch_factor", domain=("1..16",), default="2", numerics=Numerics.EXACT, switch=Switch.HOT, cures=(Bound.INPUT,)
    ),
    Knob(
        name="pin_memory",
        domain=ON_OFF,
        default="off",
        numerics=Numerics.EXACT,
        switch=Switch.HOT,
        cures=(Bound.COPY, Bound.INPUT),
    ),
    Knob(name="non_blocking", domain=ON_OFF, default="off", numerics=Numerics.EXACT, switch=Switch.HOT, cures=(Bound.COPY,)),
    Knob(
        name="device_prefetch",
        domain=ON_OFF,
        default="off",
        numerics=Numerics.EXACT,
        switch=Switch.HOT,
        cures=(Bound.COPY, Bound.INPUT),
    ),
    Knob(name="deferred_item", domain=ON_OFF, default="off", numerics=Numerics.EXACT, switch=Switch.HOT, cures=(Bound.LAUNCH,)),
    Knob(
        name="cpu_threads",
        domain=("1..256",),
        default="script",
        numerics=Numerics.TOLERANCE,
        switch=Switch.HOT,
        cures=(Bound.COMPUTE,),
    ),
    Knob(name="gc_policy", domain=ON_OFF, default="off", numerics=Numerics.EXACT, switch=Switch.HOT, cures=(Bound.LAUNCH,)),
    # Cures no bound: it takes memory down, and time up.
    Knob(name="checkpointing", domain=ON_OFF, default="off", numerics=Numerics.EXACT, switch=Switch.HOT, cures=()),
    Knob(
        name="batch_size",
        domain=("1..65536",),
        default="script",
        numerics=Numerics.TRAINING,
        switch=Switch.RESTART,
        cures=(Bound.LAUNCH, Bound.COMPUTE),
    ),
)


def find(name: str) -> Knob | None:
    return next((knob for knob in KNOBS if knob.name == name), None)
