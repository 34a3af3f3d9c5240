"""HW106 low-clocks: the card works at an idle card's clocks, and neither heat nor power holds it there."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import events, gpus, known, symptom, system
from flatout.machine.machine_facts import Facts, Gpu

# A desktop keeps an idle card at P8 and shows 30 to 50 % of its few MHz as in use; only steady work is work here.
WORKING_PERCENT = 80

# Boost moves clocks by a quarter or so; half of the maximum, with nothing to limit them, is not boost.
LOW_SHARE = 0.5

OTHER_REASONS = {
    "GPU_IDLE",
    "SW_POWER_CAP",
    "HW_SLOWDOWN",
    "SW_THERMAL_SLOWDOWN",
    "HW_THERMAL_SLOWDOWN",
    "HW_POWER_BRAKE_SLOWDOWN",
}

FAST_STATES = ("P0", "P1", "P2", "P3")


def check(facts: Facts) -> Finding | None:
    reported = symptom(facts, "stuck-in-low-clocks", "slow-when-display-off")
    stuck = next((gpu for gpu in gpus(facts) if _stuck(gpu)), None)
    if stuck is None and reported is None:
        return None
    gpu = stuck or next(iter(gpus(facts)), None)
    return RULE.found(
        *_steps(facts, gpu, display=reported is not None and reported.code == "slow-when-display-off"),
        severity=Severity.SLOW,
        gpu=gpu.name if gpu else "GPU",
        pstate=known(gpu.pstate) if gpu else None,
        sm_clock_mhz=known(gpu.sm_clock_mhz) if gpu else None,
        sm_clock_max_mhz=known(gpu.sm_clock_max_mhz) if gpu else None,
        utilisation=known(gpu.utilisation) if gpu else None,
        clock_events=sorted(events(gpu)) or None if gpu else None,
        symptom=reported.code if reported else None,
    )


def _stuck(gpu: Gpu) -> bool:
    if (known(gpu.utilisation) or 0) < WORKING_PERCENT or events(gpu) & OTHER_REASONS:
        return False
    clock, most, state = known(gpu.sm_clock_mhz), known(gpu.sm_clock_max_mhz), known(gpu.pstate)
    if clock and most:
        # Without the reasons a slow P0 may be a power limit at work; a slow P8 cannot.
        limited = known(gpu.clock_events) is None and state in FAST_STATES
        return clock < LOW_SHARE * most and not limited
    return state is not None and state not in FAST_STATES


def _steps(facts: Facts, gpu: Gpu | None, display: bool) -> list[Fix]:
    steps = [Fix(text="display")] if display else []
    if gpu is not None and "APPLICATIONS_CLOCKS_SETTING" in events(gpu):
        steps.append(Fix(command="sudo nvidia-smi --reset-gpu-clocks && sudo nvidia-smi --reset-applications-clocks"))
    if system(facts) == "Windows":
        return [*steps, Fix(text="windows"), Fix(text="restart-windows")]
    return [
        *steps,
        Fix(command="sudo nvidia-smi -pm 1 && sudo nvidia-smi --reset-gpu-clocks"),
        Fix(command="nvidia-smi -q -d CLOCK,PERFORMANCE"),
        Fix(text="reboot"),
    ]


RULE = Rule(
    code="HW106",
    name="low-clocks",
    layer=Layer.HARDWARE,
    check=check,
    explains=("low-utilisation", "performance-falling"),
)
