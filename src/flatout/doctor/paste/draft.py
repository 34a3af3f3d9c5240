"""Facts in the making: where two witnesses differ, the better one stays."""

from __future__ import annotations

from enum import IntEnum

from flatout.base.records import Missing
from flatout.machine.machine_facts import UNKNOWN, Facts, Gpu, PciDevice, Symptom

Plain = str | int | float | bool

# Codes that may stand there several times, each with a value of its own.
SEVERAL = {"cuda-error": "code", "xid": "number"}


class Rank(IntEnum):
    """How good a witness is."""

    GUESSED = 0  # follows from something else that was said
    PROSE = 1  # mentioned somewhere in a sentence
    SAID = 2  # "torch: 2.1", a field that a person filled in
    LISTED = 3  # pip and conda: installed, perhaps not what runs
    PRINTED = 4  # collect_env, nvidia-smi, torch itself
    DENIED = 5  # "it imports another one": what runs, told against what is listed


class Draft:
    def __init__(self) -> None:
        self.facts = Facts(source="pasted")
        self.notes: dict[str, str] = {}  # what means something only beside something else
        self._ranks: dict[str, int] = {}
        self._gpus: dict[int, Gpu] = {}

    def put(self, place: str, value: object, rank: Rank) -> bool:
        """Into "torch.version"; the first of the same rank stays. Whether it was taken."""
        layer, name = place.split(".")
        if self._ranks.get(place, -1) >= rank:
            return False
        self._ranks[place] = rank
        setattr(getattr(self.facts, layer), name, value)
        return True

    def rank(self, place: str) -> int:
        return self._ranks.get(place, -1)

    def add(self, place: str, value: object) -> None:
        """One more entry of a list."""
        layer, name = place.split(".")
        holder = getattr(self.facts, layer)
        held = getattr(holder, name)
        if isinstance(held, Missing):
            held = []
            setattr(holder, name, held)
        if value not in held:
            held.append(value)

    def gpu(self, index: int, name: str = "") -> Gpu:
        """The card with this number, made where it is new."""
        found = self._gpus.get(index)
        if found is None:
            found = self._gpus[index] = Gpu(index=index, name=name)
        elif name and len(name) > len(found.name):
            found.name = name
        return found

    @property
    def gpus(self) -> list[Gpu]:
        return [self._gpus[index] for index in sorted(self._gpus)]

    def device(self, vendor: str, name: str, kind: str = "unknown") -> PciDevice:
        """A card that somebody says is in the machine."""
        for device in self.devices:
            if device.vendor == vendor and device.name == name:
                return device
        device = PciDevice(vendor=vendor, name=name, kind=kind)
        self.add("hardware.pci", device)
        return device

    @property
    def devices(self) -> list[PciDevice]:
        pci = self.facts.hardware.pci
        return [] if isinstance(pci, Missing) else pci

    def symptom(self, code: str, /, **params: Plain | None) -> None:
        values: dict[str, Plain] = {name: value for name, value in params.items() if value is not None and value != ""}
        key = SEVERAL.get(code)
        for found in self.facts.symptoms:
            if found.code == code and (key is None or found.params.get(key) == values.get(key)):
                found.params.update({name: value for name, value in values.items() if name not in found.params})
                return
        self.facts.symptoms.append(Symptom(code=code, params=values))

    def has(self, *codes: str) -> bool:
        return any(symptom.code in codes for symptom in self.facts.symptoms)

    def drop(self, code: str) -> None:
        self.facts.symptoms = [symptom for symptom in self.facts.symptoms if symptom.code != code]

    def done(self) -> Facts:
        if self._gpus:
            self.facts.driver.gpus = self.gpus
        if self.facts.hardware.pci == []:
            self.facts.hardware.pci = UNKNOWN
        return self.facts
