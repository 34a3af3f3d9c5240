"""HW104 thermal-throttle: the card is too hot and lowers its clocks."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import events, gpus, known, symptom, system
from flatout.machine.machine_facts import Facts, Gpu

HEAT = {"SW_THERMAL_SLOWDOWN", "HW_THERMAL_SLOWDOWN"}

# At or above the maximum operating temperature that nvidia-smi -q shows for cards of every kind (85 to 93 °C).
HOT_C = 90

# HW_SLOWDOWN alone means heat or power; above this, near the usual target of 83 °C, heat is the likelier.
WARM_C = 80

# Some laptops' firmware holds the thermal bit on a cool, idle card.
COOL_C = 60


def check(facts: Facts) -> Finding | None:
    reported = symptom(facts, "thermal-slowdown")
    hot = next((gpu for gpu in gpus(facts) if _hot(gpu)), None)
    if hot is None and reported is None:
        return None
    gpu = hot or next(iter(gpus(facts)), None)
    reasons = sorted((HEAT | {"HW_SLOWDOWN"}) & events(gpu)) if gpu else []
    return RULE.found(
        *_steps(facts),
        severity=Severity.SLOW,
        certain=bool(HEAT & set(reasons)) or reported is not None,
        gpu=gpu.name if gpu else "GPU",
        temperature_c=known(gpu.temperature_c) if gpu else None,
        clock_events=reasons or None,
        sm_clock_mhz=known(gpu.sm_clock_mhz) if gpu else None,
        sm_clock_max_mhz=known(gpu.sm_clock_max_mhz) if gpu else None,
        symptom=reported.code if reported else None,
    )


def _hot(gpu: Gpu) -> bool:
    active, temperature = events(gpu), known(gpu.temperature_c)
    if "GPU_IDLE" in active:
        return False
    if active & HEAT:
        return temperature is None or temperature >= COOL_C
    if temperature is None:
        return False
    if "HW_SLOWDOWN" in active and "HW_POWER_BRAKE_SLOWDOWN" not in active:
        return temperature >= WARM_C
    return known(gpu.clock_events) is None and temperature >= HOT_C


def _steps(facts: Facts) -> list[Fix]:
    steps = [Fix(command="nvidia-smi -q -d TEMPERATURE,PERFORMANCE"), Fix(text="air"), Fix(text="fans")]
    if facts.hardware.laptop is True:
        steps.append(Fix(text="laptop"))
    steps.append(Fix(text="limit-windows" if system(facts) == "Windows" else "limit"))
    return steps


RULE = Rule(
    code="HW104",
    name="thermal-throttle",
    layer=Layer.HARDWARE,
    check=check,
    explains=("power-cap", "low-clocks", "low-utilisation", "performance-falling"),
)
