"""Which card, driver, wheel and Python go together: the tables of `data`, asked.

Pure. A card runs machine code of its own major number and a minor number not above its own, or newer PTX of any older
one; a wheel needs the driver branch of its CUDA family; a card needs a driver that knows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from flatout.base.records import Struct
from flatout.data import table
from flatout.machine.versions import at_least, minor, parse


class Wheel(Struct, frozen=True, kw_only=True):
    torch: str  # 2.7
    variant: str  # cu128
    cuda: str  # 12.8
    linux: tuple[str, ...]
    windows: tuple[str, ...]
    ptx: str | None

    def capabilities(self, system: str) -> tuple[str, ...]:
        """Where the Windows list is not known, the Linux list is the best guess."""
        return self.windows if system == "Windows" and self.windows else self.linux

    def serves(self, capability: str, system: str) -> bool:
        codes = [f"sm_{c.replace('.', '')}" for c in self.capabilities(system)]
        if self.ptx and system != "Windows":
            codes.append(f"compute_{self.ptx.replace('.', '')}")
        return serves(codes, capability)


def serves(arch_list: Iterable[str], capability: str) -> bool:
    """Whether code for `arch_list` (sm_86, compute_90 …) runs on a card of `capability` (8.9)."""
    card = parse(capability)
    for entry in arch_list:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)[a-z]?", entry.strip())
        if not match:
            continue
        code = (int(match[2]), int(match[3]))
        if match[1] == "sm" and code[0] == card[0] and code[1] <= card[1]:
            return True
        if match[1] == "compute" and code <= card:
            return True
    return False


def wheels() -> list[Wheel]:
    """Newest torch first, and of one torch the newest CUDA first."""
    rows = [
        Wheel(
            torch=row["torch"],
            variant=row["variant"],
            cuda=row["cuda"],
            linux=tuple(row.get("linux", ())),
            windows=tuple(row.get("windows", ())),
            ptx=row.get("linux_ptx"),
        )
        for row in table("wheels")["wheel"]
    ]
    return sorted(rows, key=lambda wheel: (parse(wheel.torch), parse(wheel.cuda)), reverse=True)


def best_wheel(capability: str | None, driver: str | None, system: str, python: str | None) -> Wheel | None:
    """The newest wheel that this card, driver and Python can run; what is not known does not exclude."""
    for wheel in wheels():
        if capability and not wheel.serves(capability, system):
            continue
        if driver and not driver_runs(driver, wheel.cuda, system):
            continue
        if python and not python_runs(python, wheel.torch):
            continue
        return wheel
    return None


def driver_runs(driver: str, cuda: str, system: str) -> bool:
    return at_least(driver, minimum_driver(cuda, system))


def minimum_driver(cuda: str, system: str) -> str:
    """The oldest driver that runs this CUDA: its family's ("12.8" -> 525.60.13), below 11 the toolkit's own."""
    major = str(parse(cuda)[0])
    for row in table("drivers")["family"]:
        if row["cuda"] == major:
            return _for(row, system)
    for row in table("drivers")["toolkit"]:
        if row["cuda"] == minor(cuda):
            return _for(row, system)
    return "0"


def cuda_of(driver: str, system: str) -> str | None:
    """The newest CUDA whose own driver this one is not older than."""
    for row in table("drivers")["toolkit"]:
        if at_least(driver, _for(row, system)):
            return str(row["cuda"])
    return None


def minimum_driver_of_card(capability: str) -> str | None:
    return _row("card_minimum", capability)


def last_driver_of_card(capability: str) -> str | None:
    return _row("card_maximum", capability)


def python_runs(python: str, torch: str) -> bool:
    for row in table("wheels")["python"]:
        if row["torch"] == minor(torch):
            return at_least(python, row["min"]) and at_least(row["max"], minor(python))
    return True


def pythons_of(torch: str) -> tuple[str, str] | None:
    """(oldest, newest) Python with wheels of this torch."""
    for row in table("wheels")["python"]:
        if row["torch"] == minor(torch):
            return row["min"], row["max"]
    return None


def index_url(variant: str) -> str:
    return f"{table('wheels')['index']['base']}{variant}"


def error_row(code: int) -> dict[str, Any] | None:
    """Name and meaning of a CUDA error code."""
    return next((row for row in table("drivers")["error"] if row["code"] == code), None)


def _for(row: dict[str, Any], system: str) -> str:
    return str(row.get("windows", row["linux"]) if system == "Windows" else row["linux"])


def _row(name: str, capability: str) -> str | None:
    return next((str(row["driver"]) for row in table("drivers")[name] if row["capability"] == capability), None)
