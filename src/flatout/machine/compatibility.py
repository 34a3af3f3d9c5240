"""Which card, driver, wheel and Python go together: the tables of `data`, asked.

Pure. A card runs machine code of its own major number and a minor number not above its own, or PTX of any older
one; a wheel needs the driver branch of its CUDA family; a card needs a driver that knows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from flatout.base.records import Struct
from flatout.data import table
from flatout.machine.versions import at_least, minor, parse

# Numbers that CUDA before 10.1 gave to errors which later releases number otherwise; old torches still print them.
LEGACY_CODES = {10: 101, 30: 999, 38: 100, 48: 209}

# The oldest variant in the table. Indexes of older CUDA (cu92, cu101) exist, but nothing more is known of them here.
OLDEST_VARIANT = "cu102"


class Wheel(Struct, frozen=True, kw_only=True):
    torch: str  # 2.7
    variant: str  # cu128
    cuda: str  # 12.8
    linux: tuple[str, ...]
    windows: tuple[str, ...]
    ptx: str | None  # of the Linux wheel; that of old Windows wheels (3.7) has never made a newer card work

    def capabilities(self, system: str) -> tuple[str, ...]:
        """Where the Windows list is not known, the Linux list is the best guess."""
        return self.windows if system == "Windows" and self.windows else self.linux

    def arch_list(self, system: str) -> list[str]:
        """As torch.cuda.get_arch_list() prints it."""
        codes = [f"sm_{c.replace('.', '')}" for c in self.capabilities(system)]
        if self.ptx and system != "Windows":
            codes.append(f"compute_{self.ptx.replace('.', '')}")
        return codes

    def serves(self, capability: str, system: str) -> bool:
        return serves(self.arch_list(system), capability)


def serves(arch_list: Iterable[str], capability: str) -> bool:
    """Whether code for `arch_list` (sm_86, compute_90 …) runs on a card of `capability` (8.9)."""
    card = parse(capability)[:2]
    for entry in arch_list:
        code = arch(entry)
        if code is None:
            continue
        same_major = code[0] == card[0] and code[1] <= card[1]
        if same_major if entry.strip().startswith("sm") else code <= card:
            return True
    return False


def arch(entry: str) -> tuple[int, int] | None:
    """ "sm_86" and "compute_86" are (8, 6), "sm_120" is (12, 0), "gfx1100" is nothing."""
    match = re.fullmatch(r"(?:sm|compute)_(\d+)(\d)[a-z]?", entry.strip())
    return (int(match[1]), int(match[2])) if match else None


def capability_of_arch(text: str) -> str | None:
    """ "sm_120", "12.0" and "120" are "12.0"."""
    plain = text.strip().lower()
    if re.fullmatch(r"\d+\.\d", plain):
        return plain
    code = arch(plain if "_" in plain else f"sm_{plain}")
    return f"{code[0]}.{code[1]}" if code else None


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


def best_wheel(
    capability: str | None, driver: str | None, system: str, python: str | None, torch: str | None = None
) -> Wheel | None:
    """The newest wheel (of the release `torch`) that this card, driver and Python can run; the unknown excludes nothing.

    Of one release the CUDA that the driver itself came with is preferred: a newer one of the family runs too, but not
    where something is compiled at run time.
    """
    fitting = [
        wheel
        for wheel in wheels()
        if (not torch or wheel.torch == minor(torch))
        and (not capability or wheel.serves(capability, system))
        and (not driver or driver_runs(driver, wheel.cuda, system))
        and (not python or python_runs(python, wheel.torch))
    ]
    newest = [wheel for wheel in fitting if wheel.torch == fitting[0].torch]
    known = [wheel for wheel in newest if driver and driver_knows(driver, wheel.cuda, system)]
    return next(iter(known or newest), None)


def newest_torch() -> str:
    return str(table("wheels")["newest_known"])


def variant_of(cuda: str) -> str:
    """ "12.8" -> "cu128"."""
    return "cu" + minor(cuda).replace(".", "")


def cuda_of_variant(text: str) -> str | None:
    """ "cu118" or "2.7.1+cu118" -> "11.8"; None where no CUDA variant is named."""
    match = re.search(r"(?:^|\+|/)cu(\d+)(\d)(?:$|[._/])", text)
    return f"{match[1]}.{match[2]}" if match else None


def default_cuda(torch: str, system: str) -> str | None:
    """What a plain `pip install torch` of this release brought; None where that was a CPU build or is not known."""
    for row in table("wheels")["default"]:
        if row["os"] == system.lower() and row["torch"] in (minor(torch), "*"):
            return cuda_of_variant(row["variant"])
    return None


def arch_list_of(torch: str, cuda: str, system: str) -> tuple[list[str], bool] | None:
    """The list of this wheel and whether it is its own; else (nightlies) that of the nearest release with this CUDA."""
    same = [wheel for wheel in wheels() if wheel.variant == variant_of(cuda)]
    if not same:
        return None
    wanted = parse(torch)[:2]
    nearest = min(same, key=lambda wheel: tuple(abs(a - b) for a, b in zip(parse(wheel.torch), wanted, strict=False)))
    return nearest.arch_list(system), parse(nearest.torch) == wanted


def wheel_of(torch: str, cuda: str) -> Wheel | None:
    return next((wheel for wheel in wheels() if wheel.torch == minor(torch) and wheel.variant == variant_of(cuda)), None)


def variants_of(torch: str) -> list[str]:
    return [wheel.variant for wheel in wheels() if wheel.torch == minor(torch)]


def index_exists(variant: str) -> bool | None:
    """Whether PyTorch has an index for this CUDA variant; None where it is older or newer than what is known here."""
    known = {wheel.variant: parse(wheel.cuda) for wheel in wheels()}
    if variant in known:
        return True
    cuda = cuda_of_variant(variant)
    if cuda is None or not known[OLDEST_VARIANT] < parse(cuda) < max(known.values()):
        return None
    return False


def served_at_all(capability: str, system: str) -> bool:
    """Whether any official wheel in the table has code for the card."""
    return best_wheel(capability, None, system, None) is not None


def driver_runs(driver: str, cuda: str, system: str) -> bool:
    return at_least(driver, minimum_driver(cuda, system))


def driver_knows(driver: str, cuda: str, system: str) -> bool:
    """Whether the driver supports this very release, and not only its family."""
    own = driver_of_cuda(cuda, system) or driver_of_cuda(cuda, "Linux")
    return own is not None and at_least(driver, own)


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


def driver_of_cuda(cuda: str, system: str) -> str | None:
    """The driver that came with this CUDA: what a driver that supports just so much is at least."""
    return next((_for(row, system) for row in table("drivers")["toolkit"] if row["cuda"] == minor(cuda)), None)


def newest_family() -> str:
    return str(table("drivers")["family"][0]["cuda"])


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


def python_has_wheels(python: str) -> bool:
    """Whether any release known here has wheels for this Python."""
    return any(python_runs(python, row["torch"]) for row in table("wheels")["python"])


def newest_python() -> str:
    pythons = pythons_of(newest_torch())
    return pythons[1] if pythons else ""


def triton_windows_of(torch: str) -> str | None:
    """The release line of triton-windows that fits this torch: "3.3"."""
    return next((row.get("triton_windows") for row in table("wheels")["triton"] if row["torch"] == minor(torch)), None)


def index_url(variant: str) -> str:
    return f"{table('wheels')['index']['base']}{variant}"


def error_row(code: int) -> dict[str, Any] | None:
    """Name and meaning of a CUDA error code."""
    return next((row for row in table("drivers")["error"] if row["code"] == code), None)


def modern_code(code: int) -> int:
    """Today's number of an error that CUDA before 10.1 numbered otherwise."""
    return LEGACY_CODES.get(code, code)


def _for(row: dict[str, Any], system: str) -> str:
    return str(row.get("windows", row["linux"]) if system == "Windows" else row["linux"])


def _row(name: str, capability: str) -> str | None:
    return next((str(row["driver"]) for row in table("drivers")[name] if row["capability"] == capability), None)
