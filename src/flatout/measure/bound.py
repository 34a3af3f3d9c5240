"""What bounds a run: from the phases of the host and whether the GPU had work during steps.

On a GPU two witnesses count. The *lag*: in mid-step, had the device already done all that the host gave it? Then it
waits for the host. The *busy share*: the device's own time of a step against its wall time; gaps between small kernels
are in it, so alone it proves nothing. Whether an earlier step is done proves nothing either: `.item()` makes it so.

| verdict | when |
|---|---|
| input | waiting for data is the largest part, and at least `DOMINANT` of the training time |
| copy | the same for copies to the device |
| compute | the device had work in mid-step, or the host spends half of its time waiting for it; and it is busy enough |
| launch | the device had run dry in at least `STARVED` of the looks, and the host's own work is the largest part |
| memory | compute, and the deep look says that at the rated peaks the bytes take far longer than the arithmetic |
| unknown | too few steps, no device, or witnesses that do not fit together |
"""

from __future__ import annotations

from collections.abc import Mapping

from flatout.base.records import Struct, field
from flatout.knobs.model import Bound
from flatout.machine.deep_look import Ceilings
from flatout.machine.run_look import DeviceLook

UNKNOWN = "unknown"

FEWEST_STEPS = 20  # below, a run is mostly its own warm-up
FEWEST_LOOKS = 5

DOMINANT = 0.3  # on a GPU: a smaller part may be hidden behind the device's work
CLEAR = 0.5  # without a device's word
STARVED = 0.5
WAITS = 0.5  # the host waits for the device: then the device is what takes the time
BUSY, FULL = 0.6, 0.9
NEAR_ROOF, PLAINLY = 0.4, 3.0  # of the rated bandwidth; and how much more than of the rated arithmetic

# One-off work: it is over after the first steps and says nothing of the loop.
HOST_WORK = ("forward", "backward", "optimizer", "script")


class Bottleneck(Struct, kw_only=True):
    by: str = UNKNOWN
    evidence: dict[str, float] = field(default_factory=dict)  # shares of the training time, and of the looks


def judge(phases: Mapping[str, float], device: DeviceLook, steps: int) -> Bottleneck:
    """`phases` in seconds, start-up and validation left aside by their names."""
    waits = {name: phases.get(name, 0.0) for name in ("input", "copy", "device_wait")}
    host = sum(phases.get(name, 0.0) for name in HOST_WORK)
    whole = sum(waits.values()) + host
    if steps < FEWEST_STEPS or whole <= 0:
        return Bottleneck()
    shares = {name: spent / whole for name, spent in (*waits.items(), ("host", host))}
    starved, busy = _starved(device), _busy(device)
    hidden = _hidden(device, starved, busy, (waits["input"] + waits["copy"]) / steps)
    heard = {name: value for name, value in (("starved", starved), ("busy", busy)) if value is not None}
    evidence = {name: round(value, 3) for name, value in {**shares, **heard}.items()}
    return Bottleneck(by=_verdict(shares, starved, busy, hidden), evidence=evidence)


def with_roofline(found: Bottleneck, ceilings: Ceilings) -> Bottleneck:
    """Whether a busy device computes or moves bytes, by the deep look. The bytes are an upper estimate, so it must be plain."""
    mfu, roofline = ceilings.mfu, ceilings.roofline
    if found.by != Bound.COMPUTE or not isinstance(mfu, float) or not isinstance(roofline, float):
        return found
    if ceilings.memory_limited is not True or roofline < NEAR_ROOF or roofline < PLAINLY * mfu:
        return found
    told = {"mfu": round(mfu, 3), "roofline": round(roofline, 3)}
    return Bottleneck(by=str(Bound.MEMORY), evidence={**found.evidence, **told})


def _verdict(shares: dict[str, float], starved: float | None, busy: float | None, hidden: bool) -> str:
    named = _largest_wait(shares, CLEAR if starved is None and busy is None else DOMINANT)
    if named is not None and not hidden:
        return named
    if starved is None and busy is None:
        return str(Bound.COMPUTE) if shares["device_wait"] >= WAITS else UNKNOWN
    if _computes(shares, starved, busy):
        return str(Bound.COMPUTE)
    if starved is not None and starved >= STARVED and shares["host"] >= max(shares["input"], shares["copy"]):
        return str(Bound.LAUNCH)
    return UNKNOWN


def _largest_wait(shares: dict[str, float], least: float) -> str | None:
    """Waiting for data or copying, where it is clearly what takes the time."""
    name = max(("input", "copy"), key=lambda one: shares[one])
    return name if shares[name] >= least else None


def _hidden(device: DeviceLook, starved: float | None, busy: float | None, wait_s: float) -> bool:
    """The device had work all the while the host waited for data: they came in time. By its busy share; else by its lag, which
    then is longer than the wait of a step (`wait_s`)."""
    if device.lag is None or starved is None or starved >= STARVED / 2:
        return False
    return busy >= FULL if busy is not None else device.lag.mean_s >= wait_s


def _computes(shares: dict[str, float], starved: float | None, busy: float | None) -> bool:
    if busy is not None and busy < BUSY:
        return False
    return starved is None or starved < STARVED or shares["device_wait"] >= WAITS


def _starved(device: DeviceLook) -> float | None:
    lag = device.lag
    return lag.starved / lag.samples if lag is not None and lag.samples >= FEWEST_LOOKS else None


def _busy(device: DeviceLook) -> float | None:
    return device.busy.share if device.busy is not None and device.busy.span_s > 0 else None
