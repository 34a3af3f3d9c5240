"""Which device to train on, and why: pure, from facts, variables and wishes.

A discrete card before an integrated one, then a vendor that flatout is tested on, then free memory, compute
capability, memory bandwidth. `--gpu-id` counts as nvidia-smi does (PCI order, whatever is visible) or gives a UUID.
A configured id counts as torch does in the script that reads it: `cuda:0` is the first *visible* card.
Two wishes that disagree are an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from flatout.base.errors import UsageError
from flatout.base.records import Missing, Struct, field
from flatout.base.whole_number import whole_number
from flatout.machine import cards, visible
from flatout.machine.machine_facts import Gpu, PciDevice
from flatout.machine.probes.pci_names import AMD_DISCRETE, AMD_INTEGRATED, INTEL_DISCRETE
from flatout.machine.versions import parse
from flatout.machine.visible import Visible

Wish = int | str | None  # an index, a UUID or the beginning of one, "cuda:1", "cpu"

BACKENDS = {"nvidia": "cuda", "amd": "rocm", "intel": "xpu", "apple": "mps"}
TESTED = ("nvidia",)  # the others are recognised; nobody has tried flatout on them yet
VENDORS = tuple(BACKENDS)  # in the order of preference between equals
KINDS = ("integrated", "unknown", "discrete")

# Steps of free memory per doubling: a desktop's few hundred megabytes must not decide against the faster card.
MEMORY_STEPS = 4


class Choice(Struct, frozen=True, kw_only=True):
    backend: str  # cuda, rocm, xpu, mps, cpu
    index: int | None = None  # in PCI order; None on the CPU
    uuid: str | None = None
    name: str = ""
    variable: str | None = None  # what to export …
    visible_devices: str | None = None  # … and to what, so that the program sees this card alone
    reason: str  # `choice.<reason>` in the catalogue
    params: dict[str, str | int | float] = field(default_factory=dict)
    tested: bool = True

    @property
    def device(self) -> str:
        """What torch calls it once the variable is exported."""
        return {"cuda": "cuda:0", "rocm": "cuda:0", "xpu": "xpu:0", "mps": "mps"}.get(self.backend, "cpu")

    @property
    def exports(self) -> dict[str, str]:
        """Numbers mean nothing without an order: CUDA counts the fastest first unless told."""
        if self.variable is None or self.visible_devices is None:
            return {}
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if self.backend == "cuda" else {}
        return {**order, self.variable: self.visible_devices}


class _Card(Struct, frozen=True, kw_only=True):
    gpu: Gpu
    kind: str
    bandwidth: float
    obstacle: str | None  # why nothing can run on it

    @property
    def merits(self) -> tuple[tuple[str, float | tuple[int, ...]], ...]:
        """What speaks for it, the weightiest first; the names are reasons."""
        gpu, free = self.gpu, _free(self.gpu)
        capability = gpu.capability if isinstance(gpu.capability, str) else cards.capability_of(gpu.name) or ""
        return (
            ("discrete", KINDS.index(self.kind)),
            ("supported", -VENDORS.index(gpu.vendor)),
            ("memory", round(MEMORY_STEPS * math.log2(free)) if free > 0 else -1),
            ("capability", parse(capability)),
            ("bandwidth", self.bandwidth),
            ("free", free),
            ("first", -gpu.index),
        )


def choose(
    gpus: Sequence[Gpu],
    *,
    pci: Sequence[PciDevice] = (),
    environment: Mapping[str, str] | None = None,
    asked: Wish = None,
    configured: Wish = None,
    backend: str | None = None,
) -> Choice:
    """The card to use, or the CPU with the reason; `backend` is what the torch at hand was built for, if known."""
    environment = environment or {}
    all_cards = _cards(gpus, pci, backend)
    seen = _seen(all_cards, environment)
    asked, configured = _plain(asked), _plain(configured)
    if "cpu" in (asked, configured):
        return _processor_asked(asked, configured)
    if not all_cards:
        return _none(gpus, pci, backend)
    first = _asked(asked, all_cards, seen, environment)
    second = _configured(configured, seen, environment)
    if first and second and first.gpu != second.gpu:
        raise UsageError("error.gpu-id-contradicts", asked=_called(asked, first), configured=_called(configured, second))
    if first or second:
        card = first or second
        assert card is not None
        wish = asked if first else configured
        return _choice(card, environment, "asked" if first else "configured", {"id": str(wish)})
    return _best(all_cards, seen, environment, pci)


def _best(all_cards: list[_Card], seen: list[_Card], environment: Mapping[str, str], pci: Sequence[PciDevice]) -> Choice:
    if not seen:
        variable = next(
            (name for name in (visible.CUDA, visible.HIP, visible.ROCR, visible.ZE) if name in environment), visible.CUDA
        )
        return _processor("hidden", variable=variable, value=environment.get(variable, ""), name=all_cards[0].gpu.name)
    usable = sorted((card for card in seen if not card.obstacle), key=lambda card: card.merits, reverse=True)
    if not usable:
        return _processor(str(seen[0].obstacle), name=seen[0].gpu.name)
    best, gib = usable[0], round(_free(usable[0].gpu) / 2**30, 1)
    if len(usable) > 1:
        other = usable[1]
        reason = next(mine[0] for mine, theirs in zip(best.merits, other.merits, strict=True) if mine[1] != theirs[1])
        return _choice(best, environment, reason, {"other": other.gpu.name, "free_gib": gib, "cards": len(usable)})
    passed = _passed_over(best, pci)
    if passed:
        return _choice(best, environment, "discrete", {"other": passed, "free_gib": gib, "cards": len(all_cards)})
    return _choice(best, environment, "only" if len(all_cards) == 1 else "only-usable", {"cards": len(all_cards)})


def _passed_over(best: _Card, pci: Sequence[PciDevice]) -> str | None:
    """The processor's own graphics on the bus, beside a discrete card: laptops have both."""
    names = sorted(str(device.name) for device in pci if device.kind == "integrated" and isinstance(device.name, str))
    return names[0] if names and best.kind == "discrete" else None


# -- the cards ------------------------------------------------------------------------------------------------------


def _cards(gpus: Sequence[Gpu], pci: Sequence[PciDevice], backend: str | None) -> list[_Card]:
    """What a driver describes, and cards on the bus that torch reaches without one that we can ask (Intel, Apple, AMD)."""
    found = [*gpus, *_undescribed(gpus, pci, backend)]
    made = [_card(gpu, pci) for gpu in found if gpu.vendor in BACKENDS and backend in (None, BACKENDS[gpu.vendor])]
    return sorted(made, key=lambda card: (VENDORS.index(card.gpu.vendor), card.gpu.index))


def _card(gpu: Gpu, pci: Sequence[PciDevice]) -> _Card:
    known = cards.find(gpu.name)
    obstacle = "prohibited" if gpu.compute_mode == "prohibited" else None
    if gpu.mig_enabled is True and gpu.mig_devices == []:
        obstacle = "mig-empty"
    return _Card(gpu=gpu, kind=kind_of(gpu, pci), bandwidth=(known.bandwidth_gb_s if known else None) or 0.0, obstacle=obstacle)


def _undescribed(gpus: Sequence[Gpu], pci: Sequence[PciDevice], backend: str | None) -> Iterable[Gpu]:
    """Without a torch made for it, graphics inside a processor is no device to train on; Apple's is all there is."""
    for vendor in ("amd", "intel", "apple"):
        if any(gpu.vendor == vendor for gpu in gpus):
            continue
        devices = sorted((device for device in pci if device.vendor == vendor), key=lambda device: str(device.address))
        for index, device in enumerate(devices):
            if vendor == "apple" or device.kind == "discrete" or backend == BACKENDS[vendor]:
                name = device.name if isinstance(device.name, str) else vendor
                yield Gpu(index=index, name=name, vendor=vendor, pci_bus_id=device.address)


def kind_of(gpu: Gpu, pci: Sequence[PciDevice]) -> str:
    known = cards.find(gpu.name)
    if gpu.vendor == "nvidia":
        return "integrated" if known and not known.discrete else "discrete"
    for device in pci:
        if (
            device.vendor == gpu.vendor
            and device.kind in ("discrete", "integrated")
            and _same_place(device.address, gpu.pci_bus_id)
        ):
            return device.kind
    if gpu.vendor == "amd":
        return "discrete" if AMD_DISCRETE.search(gpu.name) else "integrated" if AMD_INTEGRATED.search(gpu.name) else "unknown"
    return "discrete" if gpu.vendor == "intel" and INTEL_DISCRETE.search(gpu.name) else "integrated"


def _same_place(one: str | Missing, other: str | Missing) -> bool:
    """0000:01:00.0 and 00000000:01:00.0 are one place."""
    return isinstance(one, str) and isinstance(other, str) and one.lower().lstrip("0") == other.lower().lstrip("0")


def _free(gpu: Gpu) -> int:
    """Free memory; where only the total is known, that."""
    value = gpu.memory_total_bytes if isinstance(gpu.memory_free_bytes, Missing) else gpu.memory_free_bytes
    return 0 if isinstance(value, Missing) else value


# -- what the variables leave ---------------------------------------------------------------------------------------


def look(gpus: Iterable[Gpu], vendor: str, environment: Mapping[str, str]) -> Visible:
    """What the environment leaves of one vendor's cards."""
    slots = visible.slots(gpus, vendor)
    if vendor == "nvidia":
        return visible.resolve(environment.get(visible.CUDA), slots)
    if vendor == "amd":
        return visible.rocm(environment, slots)
    return visible.resolve(environment.get(visible.ZE) if vendor == "intel" else None, slots)


def _seen(all_cards: list[_Card], environment: Mapping[str, str]) -> list[_Card]:
    """The visible cards in the order in which a program counts them."""
    found = []
    for vendor in VENDORS:
        by_index = {card.gpu.index: card for card in all_cards if card.gpu.vendor == vendor}
        left = look([card.gpu for card in by_index.values()], vendor, environment)
        found += [by_index[index] for index in left.cards] if left.decided else list(by_index.values())
    return found


# -- wishes ---------------------------------------------------------------------------------------------------------


def _plain(wish: Wish) -> Wish:
    """ "1" and "cuda:1" are 1; -1 is the CPU; "cuda" and "auto" wish nothing."""
    if isinstance(wish, str):
        wish = wish.strip()
        text = wish.lower().removeprefix("cuda:").removeprefix("xpu:")
        if text in ("", "auto", "cuda", "gpu", "xpu", "mps"):
            return None
        number = whole_number(text.lstrip("-"))
        if number is not None:
            wish = -number if text.startswith("-") else number
    return "cpu" if wish == -1 or (isinstance(wish, str) and wish.lower() == "cpu") else wish


def _asked(wish: Wish, all_cards: list[_Card], seen: list[_Card], environment: Mapping[str, str]) -> _Card | None:
    if wish is None:
        return None
    card = _named(wish, all_cards, "error.gpu-id-unknown", len(all_cards))
    if card not in seen:
        variable, value = _hides(card, environment)
        raise UsageError("error.gpu-id-hidden", asked=wish, variable=variable, value=value)
    if card.obstacle:
        raise UsageError("error.gpu-id-unusable", asked=wish, name=card.gpu.name, why=card.obstacle)
    return card


def _configured(wish: Wish, seen: list[_Card], environment: Mapping[str, str]) -> _Card | None:
    """Nothing where nothing is visible: a configuration written for a GPU still runs on the CPU."""
    if wish is None or not seen:
        return None
    if isinstance(wish, str):
        return _named(wish, seen, "error.gpu-configured-unknown", len(seen))
    vendor = seen[0].gpu.vendor
    counted = [card for card in seen if card.gpu.vendor == vendor]
    if wish >= len(counted):
        raise UsageError("error.gpu-configured-unknown", id=wish, count=len(counted))
    return None if counted[wish].obstacle else counted[wish]


def _named(wish: int | str, among: list[_Card], key: str, count: int) -> _Card:
    if isinstance(wish, int):
        fits = [card for card in among if card.gpu.index == wish][:1]  # of two vendors' card 0 the preferred one's
    else:
        fits = [card for card in among if any(uuid.lower().startswith(wish.lower()) for uuid in _uuids(card.gpu))]
    if len(fits) > 1:
        raise UsageError("error.gpu-id-ambiguous", id=wish, count=len(fits))
    if not fits:
        raise UsageError(key, id=wish, count=count)
    return fits[0]


def _uuids(gpu: Gpu) -> list[str]:
    migs = [] if isinstance(gpu.mig_devices, Missing) else gpu.mig_devices
    return [uuid for uuid in (gpu.uuid, *migs) if isinstance(uuid, str)]


def _hides(card: _Card, environment: Mapping[str, str]) -> tuple[str, str]:
    names = {"nvidia": (visible.CUDA,), "amd": (visible.HIP, visible.ROCR, visible.CUDA), "intel": (visible.ZE,)}
    variable = next((name for name in names.get(card.gpu.vendor, ()) if name in environment), visible.CUDA)
    return variable, environment.get(variable, "")


def _called(wish: Wish, card: _Card) -> str:
    return f"{wish} ({card.gpu.name})"


# -- the answer -----------------------------------------------------------------------------------------------------


def _choice(card: _Card, environment: Mapping[str, str], reason: str, params: dict[str, str | int | float]) -> Choice:
    gpu = card.gpu
    variable, value = _export(gpu, environment, params.get("id"))
    return Choice(
        backend=BACKENDS[gpu.vendor],
        index=gpu.index,
        uuid=gpu.uuid if isinstance(gpu.uuid, str) else None,
        name=gpu.name,
        variable=variable,
        visible_devices=value,
        reason=reason,
        params={"name": gpu.name, "index": gpu.index, **params},
        tested=gpu.vendor in TESTED,
    )


def _export(gpu: Gpu, environment: Mapping[str, str], wish: object) -> tuple[str | None, str | None]:
    if gpu.vendor == "nvidia":
        return visible.CUDA, _mig(gpu, environment, wish) or (gpu.uuid if isinstance(gpu.uuid, str) else str(gpu.index))
    if gpu.vendor == "amd":
        # HIP counts among what ROCr's own variable leaves.
        left = [entry.strip() for entry in environment[visible.ROCR].split(",")] if visible.ROCR in environment else []
        names = {str(gpu.index), gpu.uuid if isinstance(gpu.uuid, str) else ""}
        place = next((place for place, entry in enumerate(left) if entry in names), None)
        return visible.HIP, str(gpu.index if place is None else place)
    return (visible.ZE, str(gpu.index)) if gpu.vendor == "intel" else (None, None)


def _mig(gpu: Gpu, environment: Mapping[str, str], wish: object) -> str | None:
    """Of a card cut into MIG devices a process sees one: the wished, the environment's, or the first."""
    if gpu.mig_enabled is not True or isinstance(gpu.mig_devices, Missing):
        return None
    for named in (str(wish or ""), environment.get(visible.CUDA, "")):
        fits = [
            uuid
            for uuid in gpu.mig_devices
            if named.startswith("MIG-") and uuid.lower().startswith(named.split(",")[0].lower())
        ]
        if fits:
            return fits[0]
    return gpu.mig_devices[0]


def _processor_asked(asked: Wish, configured: Wish) -> Choice:
    if asked is not None and configured is not None and asked != configured:
        raise UsageError("error.gpu-id-contradicts", asked=asked, configured=configured)
    return _processor("cpu-asked" if asked == "cpu" else "cpu-configured")


def _none(gpus: Sequence[Gpu], pci: Sequence[PciDevice], backend: str | None) -> Choice:
    if gpus and backend:
        return _processor("other-backend", backend=backend, name=gpus[0].name)
    card = next((device for device in pci if device.vendor == "nvidia"), None)
    if card:
        return _processor("no-driver", name=card.name if isinstance(card.name, str) else "NVIDIA GPU")
    return _processor("no-gpu")


def _processor(reason: str, **params: str | int | float) -> Choice:
    return Choice(backend="cpu", reason=reason, params=params)
