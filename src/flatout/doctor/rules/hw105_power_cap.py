"""HW105 power-cap: the card may draw far less power than it was built for."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import SLOW_REPORTS, events, gpus, known, symptom
from flatout.doctor.remedy import privileged
from flatout.machine import cards
from flatout.machine.machine_facts import Facts, Gpu

# Owners trim cards by a fifth to save noise and lose little; below this the limit itself is the brake.
FAR_BELOW_DEFAULT = 0.7

# The maximum is often a good part above the default (for overclocking), so it must be missed by more.
FAR_BELOW_MAX = 0.5

# Reports of a slow card, beyond the mere word that it is at its limit.
SLOWER = tuple(code for code in SLOW_REPORTS if code != "power-capped")

BRAKES = {"HW_POWER_BRAKE_SLOWDOWN", "HW_SLOWDOWN"}
WARM_C = 80  # above it a bare HW_SLOWDOWN is rather heat (HW104)


def check(facts: Facts) -> Finding | None:
    for gpu in gpus(facts):
        if _set_low(gpu):
            return _found(facts, gpu, Fix(text="raise"), privileged(facts, _raise(gpu)), Fix(text="who"))
        if _braked(gpu):
            return _found(facts, gpu, Fix(text="supply"), Fix(text="battery"))
    for gpu in gpus(facts):
        if _capped(facts, gpu):
            return _found(facts, gpu, Fix(command="nvidia-smi -q -d POWER,PERFORMANCE"), Fix(text="raise"), certain=False)
    reported = symptom(facts, "power-capped")
    if reported is not None and not any(known(gpu.clock_events) is not None for gpu in gpus(facts)):
        return _found(facts, None, Fix(command="nvidia-smi -q -d POWER,PERFORMANCE"), Fix(text="raise"), certain=False)
    if facts.hardware.on_battery is True and facts.hardware.laptop is True and gpus(facts):
        return _found(facts, gpus(facts)[0], Fix(text="battery"), severity=Severity.NOTE)
    return None


def _set_low(gpu: Gpu) -> bool:
    limit, default, most = known(gpu.power_limit_w), known(gpu.power_limit_default_w), known(gpu.power_limit_max_w)
    if not limit:
        return False
    if default:
        return limit < FAR_BELOW_DEFAULT * default
    return most is not None and limit < FAR_BELOW_MAX * most


def _braked(gpu: Gpu) -> bool:
    """The power supply, the server or the battery holds the card back; the driver would not do that by itself."""
    active = events(gpu)
    if "GPU_IDLE" in active or not active & BRAKES or "HW_THERMAL_SLOWDOWN" in active:
        return False
    return "HW_POWER_BRAKE_SLOWDOWN" in active or (known(gpu.temperature_c) or 0) < WARM_C


def _capped(facts: Facts, gpu: Gpu) -> bool:
    """At its limit, and somebody finds it slow. At full load that is how data-centre cards are meant to run."""
    card = cards.find(gpu.name)
    if "SW_POWER_CAP" not in events(gpu) or (card is not None and card.family == "datacenter"):
        return False
    if known(gpu.power_limit_default_w):
        return symptom(facts, *SLOWER) is not None
    return symptom(facts, *SLOW_REPORTS) is not None


def _raise(gpu: Gpu) -> str:
    watts = known(gpu.power_limit_default_w) or known(gpu.power_limit_max_w) or 0
    return f"nvidia-smi -i {gpu.index} -pl {watts:.0f}"


def _found(facts: Facts, gpu: Gpu | None, *fix: Fix, certain: bool = True, severity: Severity = Severity.SLOW) -> Finding:
    return RULE.found(
        *fix,
        severity=severity,
        certain=certain,
        gpu=gpu.name if gpu else "GPU",
        power_draw_w=known(gpu.power_draw_w) if gpu else None,
        power_limit_w=known(gpu.power_limit_w) if gpu else None,
        power_limit_default_w=known(gpu.power_limit_default_w) if gpu else None,
        power_limit_max_w=known(gpu.power_limit_max_w) if gpu else None,
        clock_events=sorted(events(gpu)) or None if gpu else None,
        on_battery=known(facts.hardware.on_battery) or None,
    )


RULE = Rule(
    code="HW105",
    name="power-cap",
    layer=Layer.HARDWARE,
    check=check,
    explains=("low-utilisation", "performance-falling"),
)
