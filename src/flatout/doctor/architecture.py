"""Whether torch's machine code fits the cards: what the rules on architectures share."""

from __future__ import annotations

from flatout.base.records import Struct
from flatout.doctor import queries
from flatout.doctor.model import Severity
from flatout.machine import compatibility
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import parse

NO_KERNEL = 209

# PTX older than this has never made a newer card work in practice: the 3.7 in old Windows wheels is all there is of it,
# and an RTX 50 says "no kernel image" all the same.
OLDEST_USEFUL_PTX = (8, 0)

# The newest card before RTX 50. A wheel that stops at it and fails on an unnamed card fails, most likely, on a newer one.
BEFORE_BLACKWELL = (9, 0)


class Misfit(Struct, kw_only=True):
    card: str
    capability: str | None
    codes: list[str]  # what torch was compiled for
    card_is_older: bool
    certain: bool
    severity: Severity = Severity.FAULT


def no_kernel(facts: Facts) -> bool:
    """Whether somebody met the message itself: no kernel image, or the smallest kernel failed for want of one."""
    failed = "no kernel image" in (queries.known(facts.torch.kernel) or "").lower()
    return (
        failed
        or queries.symptom(facts, "no-kernel-image") is not None
        or NO_KERNEL in map(compatibility.modern_code, queries.cuda_codes(facts))
    )


def runs_on(codes: list[str], capability: str) -> bool:
    """The binary rule, without PTX that is too old to be of use."""
    useful = [code for code in codes if code.startswith("sm") or (compatibility.arch(code) or (0, 0)) >= OLDEST_USEFUL_PTX]
    return compatibility.serves(useful, capability)


def misfit(facts: Facts) -> Misfit | None:
    """The card that torch has no code for. Nothing where torch's own list has it: then whoever complains is another torch
    (wrong-environment) or an extension."""
    if facts.torch.kernel == "ok" or queries.known(facts.torch.hip) not in (None, "none"):
        return None
    complaint = queries.symptom(facts, "arch-not-compatible")
    capability, codes = queries.capability(facts), queries.arch_list(facts)
    if complaint and capability:
        supported = str(complaint.params.get("supported", "")).replace(",", " ").split()
        if codes and codes[1] and runs_on(codes[0], capability):
            return None
        listed = supported or (codes[0] if codes else [])
        if listed and runs_on(listed, capability):
            return None  # a false alarm of the program's own: sm_86 serves 8.9
        card = str(complaint.params.get("card") or queries.any_nvidia_gpu(facts) or "GPU")
        return Misfit(card=card, capability=capability, codes=listed, card_is_older=_older(listed, capability), certain=True)
    found = queries.nvidia_cards(facts)
    if found:
        return _among(facts, found, codes)
    if no_kernel(facts):
        return _unnamed(facts, codes)
    return _told(facts, codes)


def _among(facts: Facts, cards: list[tuple[str, str]], codes: tuple[list[str], bool] | None) -> Misfit | None:
    """The first of these cards that is not served. Another card that is served makes it a note, unless a kernel failed."""
    system, failed = queries.system(facts), no_kernel(facts)
    dead = [(name, value) for name, value in cards if not compatibility.served_at_all(value, system)]
    if codes is None:
        meant = facts.source == "probed" or queries.complains(facts) or _old(facts) or not facts.symptoms
        if dead and len(dead) == len(cards) and meant:
            return Misfit(card=dead[0][0], capability=dead[0][1], codes=[], card_is_older=True, certain=True)
        name, value = cards[0]
        if not failed and not (_old(facts) and _older([], value)):
            return None
        return Misfit(card=name, capability=value, codes=[], card_is_older=_older([], value), certain=False)
    if not codes[1] and not failed and facts.source == "probed" and not queries.complains(facts):
        return None  # a list that is only likely, and nobody who misses anything
    unserved = [(name, value) for name, value in cards if not runs_on(codes[0], value)]
    if not unserved:
        return None
    name, value = unserved[0]
    return Misfit(
        card=name,
        capability=value,
        codes=codes[0],
        card_is_older=_older(codes[0], value),
        certain=codes[1] or failed,
        severity=Severity.FAULT if failed or len(unserved) == len(cards) else Severity.NOTE,
    )


def _unnamed(facts: Facts, codes: tuple[list[str], bool] | None) -> Misfit | None:
    """The message without the card. What the wheel stops at says which side the card is on."""
    listed = codes[0] if codes else []
    newest = max((arch for code in listed if (arch := compatibility.arch(code))), default=(0, 0))
    return Misfit(card="GPU", capability=None, codes=listed, card_is_older=newest > BEFORE_BLACKWELL, certain=False)


def _old(facts: Facts) -> bool:
    return queries.symptom(facts, "old-architecture") is not None


def _told(facts: Facts, codes: tuple[list[str], bool] | None) -> Misfit | None:
    """A report about a generation that builds have dropped; nothing where this build still has it."""
    told = queries.symptom(facts, "old-architecture")
    if told is None:
        return None
    value, listed = told.params.get("capability"), codes[0] if codes else []
    capability = str(value) if value else None
    if capability and listed and (runs_on(listed, capability) or not _older(listed, capability)):
        return None
    return Misfit(card="GPU", capability=capability, codes=listed, card_is_older=True, certain=False)


def _older(codes: list[str], capability: str) -> bool:
    """Older than all that is listed; with no list, older than what the newest torch serves."""
    listed = [arch for code in codes if code.startswith("sm") and (arch := compatibility.arch(code))]
    if not listed:
        wheel = compatibility.wheels()[0]
        listed = [arch for code in wheel.arch_list("Linux") if (arch := compatibility.arch(code))]
    return parse(capability)[:2] < min(listed)
