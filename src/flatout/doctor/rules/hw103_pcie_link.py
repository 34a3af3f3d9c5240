"""HW103 pcie-link: the card is connected by far fewer or far slower lanes than it could use."""

from __future__ import annotations

from flatout.base.records import Struct
from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import busy, gpus, known, symptom
from flatout.machine.machine_facts import Facts, PciDevice

# Half the lanes is what a board with two cards gives each on purpose, and costs training little; a quarter is felt.
NARROW_SHARE = 0.25

# GT/s per lane of each PCIe generation: the link's speed is lanes times this.
RATES = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}

WIDEST = 32  # what a virtual machine reports beyond this (63, 255) is no width


class Link(Struct, kw_only=True):
    name: str
    width: int
    width_max: int
    generation: int | None = None
    generation_max: int | None = None
    loaded: bool = False

    def share(self) -> float:
        """Of what it could carry. The generation counts only at work: an idle card lowers it to save power."""
        share = self.width / self.width_max
        if self.loaded and self.generation in RATES and self.generation_max in RATES:
            share *= RATES[self.generation] / RATES[self.generation_max]
        return share


def check(facts: Facts) -> Finding | None:
    if symptom(facts, "healthy-remark"):
        return None
    links = _links(facts)
    slowest = min(links, key=Link.share, default=None)
    reported = symptom(facts, "pcie-narrow")
    if slowest is not None and slowest.share() <= NARROW_SHARE:
        return _found(slowest, certain=slowest.loaded or reported is not None)
    if reported is None:
        return None
    width = reported.params.get("width")
    if isinstance(width, int) and width >= 16 and not any(link.loaded for link in links):
        return None  # all lanes are there, and nobody saw the card at work
    return RULE.found(
        *STEPS,
        severity=Severity.SLOW,
        gpu=links[0].name if links else "GPU",
        width=width,
        width_max=reported.params.get("width_max"),
        generation=reported.params.get("generation"),
        symptom=reported.code,
    )


def _found(link: Link, certain: bool) -> Finding:
    return RULE.found(
        *STEPS,
        severity=Severity.SLOW,
        certain=certain,
        gpu=link.name,
        width=link.width,
        width_max=link.width_max,
        generation=link.generation if link.loaded else None,
        generation_max=link.generation_max if link.loaded else None,
        share_percent=round(100 * link.share()),
    )


def _links(facts: Facts) -> list[Link]:
    """By the driver's word, else by the bus's own."""
    links = [
        Link(
            name=gpu.name,
            width=known(gpu.link_width) or 0,
            width_max=known(gpu.link_width_max) or 0,
            generation=known(gpu.link_generation),
            generation_max=known(gpu.link_generation_max),
            loaded=busy(gpu),
        )
        for gpu in gpus(facts)
    ]
    links = links or [
        Link(
            name=known(device.name) or device.vendor,
            width=known(device.link_width) or 0,
            width_max=known(device.link_width_max) or 0,
        )
        for device in known(facts.hardware.pci) or []
        if device.vendor in ("nvidia", "amd") and device.kind != "integrated" and not _asleep(device)
    ]
    return [link for link in links if 0 < link.width <= link.width_max <= WIDEST]


def _asleep(device: PciDevice) -> bool:
    """Its registers say nothing then."""
    return (known(device.power_state) or "").startswith("D3")


STEPS = (
    Fix(text="under-load"),
    Fix(command="nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current,pcie.link.width.max --format=csv -l 1"),
    Fix(text="slot"),
    Fix(text="riser"),
    Fix(text="firmware"),
)

RULE = Rule(
    code="HW103",
    name="pcie-link",
    layer=Layer.HARDWARE,
    check=check,
    explains=("low-utilisation", "performance-falling"),
)
