"""Which GPUs a program may see: CUDA_VISIBLE_DEVICES and similar variables, read as CUDA reads them.

Pure. Tried against the CUDA 13.0 driver: the first entry decides whether the list holds numbers, GPU- or MIG- UUIDs; the list
ends at the first entry that is of another kind or names no card; numbers are read like C's strtol ("0gpu" is 0);
of a UUID any unambiguous beginning does, its digits in either case; a card named twice hides all of them (error 101).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from flatout.base.records import Missing, Struct
from flatout.machine.machine_facts import Gpu

CUDA, HIP, ROCR, ZE = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"

NUMBER = re.compile(r"\s*([+-]?\d+)")
UUID = re.compile(r"(GPU|MIG)-.*[0-9A-Za-z]", re.S)


class Slot(NamedTuple):
    """A card as the variables can name it; None where its UUID or its MIG devices are not known."""

    card: int  # its index
    uuid: str | None
    migs: tuple[str, ...] | None


class Visible(Struct, frozen=True, kw_only=True):
    count: int  # devices that a program sees
    cards: tuple[int, ...] = ()  # their indices, in the order in which the program counts them; only those that are known
    mig: str | None = None  # the one MIG device: a process never sees two
    problem: str | None = None  # why the list ends early: empty, negative, quoted, not-a-device, out-of-range, unknown-uuid …
    entry: str = ""  # where it ends
    decided: bool = True  # False: a UUID could not be looked up


def slots(gpus: Iterable[Gpu], vendor: str) -> tuple[Slot, ...]:
    """The vendor's cards in PCI order."""
    found = [
        Slot(
            gpu.index,
            None if isinstance(gpu.uuid, Missing) else gpu.uuid,
            None if isinstance(gpu.mig_devices, Missing) else tuple(gpu.mig_devices),
        )
        for gpu in gpus
        if gpu.vendor == vendor
    ]
    return tuple(sorted(found, key=lambda slot: slot.card))


def resolve(value: str | None, cards: Sequence[Slot] | None) -> Visible:
    """What of `cards` the value leaves; with None (cards not known) only what the wording itself says."""
    if value is None:
        return Visible(count=len(cards or ()), cards=tuple(slot.card for slot in cards or ()), decided=cards is not None)
    if not value.strip():
        return Visible(count=0, problem="empty")
    seen: list[int] = []
    count, decided, kind = 0, True, None
    for entry in value.split(","):
        this = _kind(entry)
        if this is None or kind not in (None, this):
            return Visible(count=count, cards=tuple(seen), problem=_not_a_device(entry, kind), entry=entry, decided=decided)
        kind = this
        found = _number(entry, cards) if kind == "number" else _uuid(entry, cards, kind)
        if isinstance(found, str):
            return Visible(count=count, cards=tuple(seen), problem=found, entry=entry, decided=decided)
        if found is not None and found in seen:
            return Visible(count=0, problem="repeated", entry=entry)
        if found is not None:
            seen.append(found)
        count, decided = count + 1, decided and found is not None
        if kind == "MIG":
            return Visible(count=1, cards=tuple(seen), mig=entry, decided=decided)
    return Visible(count=count, cards=tuple(seen), decided=decided)


def rocm(environment: Mapping[str, str], cards: Sequence[Slot] | None) -> Visible:
    """ROCr's list first; HIP's (or, where that is not set, CUDA's) then counts among what is left of it."""
    first = resolve(environment.get(ROCR), cards)
    value = environment.get(HIP, environment.get(CUDA))
    if first.problem and not first.count:
        return first
    if value is None:
        return first
    if ROCR not in environment:
        return resolve(value, cards)
    by_index = {slot.card: slot for slot in cards or ()}
    left = [by_index.get(index, Slot(index, None, None)) for index in first.cards] if first.decided else None
    if left is None:
        # Of cards that nobody listed only the number is known.
        left = [Slot(position, None, None) for position in range(first.count)]
    numbered = [Slot(position, slot.uuid, slot.migs) for position, slot in enumerate(left)]
    second = resolve(value, numbered)
    back = tuple(left[position].card for position in second.cards) if first.decided else ()
    return Visible(count=second.count, cards=back, problem=second.problem, entry=second.entry, decided=second.decided)


def _kind(entry: str) -> str | None:
    if NUMBER.match(entry):
        return "number"
    return entry[:3] if UUID.fullmatch(entry) else None


def _not_a_device(entry: str, kind: str | None) -> str:
    if kind is not None and _kind(entry):
        return "mixed"
    return "quoted" if entry.strip()[:1] in ("'", '"') else "not-a-device"


def _number(entry: str, cards: Sequence[Slot] | None) -> int | str:
    match = NUMBER.match(entry)
    number = int(match[1]) if match else -1
    if number < 0:
        return "negative"
    if cards is None:
        return number
    return cards[number].card if number < len(cards) else "out-of-range"


def _uuid(entry: str, cards: Sequence[Slot] | None, kind: str) -> int | str | None:
    """The card; the problem; or None where it cannot be looked up."""
    if cards is None:
        return None
    if kind == "MIG" and "/" in entry:  # MIG-GPU-<uuid>/<instance>/<instance>, as before driver 470
        entry, kind = entry.removeprefix("MIG-").split("/")[0], "GPU"
    names = [(slot, [slot.uuid] if kind == "GPU" else slot.migs) for slot in cards]
    fits = [slot for slot, uuids in names for uuid in uuids or () if uuid and uuid.lower().startswith(entry.lower())]
    if len(fits) == 1:
        return fits[0].card
    if fits:
        return "ambiguous-uuid"
    return None if any(not uuids or None in uuids for _, uuids in names if kind == "GPU" or uuids is None) else "unknown-uuid"
