"""Names of cards, wherever they stand and however they are spelt."""

from __future__ import annotations

import re

from flatout.base.records import Struct
from flatout.machine import cards


class Named(Struct, frozen=True, kw_only=True):
    name: str
    vendor: str  # nvidia, amd, intel
    kind: str = "discrete"
    count: int = 1
    capability: str | None = None  # "12.0", "gfx1100"
    mig: bool = False


_SUFFIX = (
    r"(?:[ -]?(?:ti|super|d)\b){0,2}(?:[ -]?\d{1,3} ?gi?b\b)?"
    r"(?:[ -]?(?:laptop gpu|laptop|mobile|notebook|with max-?q design|max-?q|sff ada generation|sff ada|ada generation|ada"
    r"|blackwell(?: (?:max-q )?(?:workstation|server) edition)?)\b){0,2}"
)
_NVIDIA = re.compile(
    r"\b(?:nvidia[ -]?)?(?:geforce[ -]?)?(?:"
    r"(?:rtx|gtx|gt|mx)[ -]?(?:pro[ -]?)?a?\d{3,4}m?x?(?![\d.])"
    + _SUFFIX
    + r"|quadro (?:rtx )?[a-z]{0,2}\d{3,4}m?"
    + _SUFFIX
    # The X after "GTX TITAN" is part of the name.
    + r"|(?:gtx )?titan (?:rtx|xp|x|v|z|black)\b(?: \(pascal\))?"
    r"|tesla [a-z]\d{1,3}[a-z]?(?:-[a-z0-9]{2,5}){0,2}\b"
    r"|(?:gh200|gb[23]00|gb10|b[123]00|h100|h200|h800|h20|a100|a800|l40s?|v100s?|p100)\b(?:[ -](?:sxm\d?|pcie|nvl|hbm\d\w?"
    r"|\d{2,3} ?gi?b)\b){0,3}"
    r"|jetson (?:agx )?(?:orin|xavier|nano|tx2|thor)(?: nx| nano)?"
    r"|9\d0mx?\b"
    r")",
    re.I,
)
# Too short to be a card by themselves: "P4" is also a performance state, "A2" a sheet of paper.
_SHORT = re.compile(
    r"\b(?:nvidia|tesla|gpus?:?|cards?:?|an?|on|with|\d ?[x×*]) ?(a2|a10g?|a16|a30|a40|l4|l20|k80|k40[cm]?|m40|m60|p40|t4"
    r"|t400|t600|t1000)\b"
    r"(?! ?%| ?mi?b| ?mhz)|\b(a10g?|a16|a30|a40|l4|k80|m40|m60|p40|t4) (?:gpus?|cards?|instances?)\b|\b(?:nvidia|tesla) (p4)\b",
    re.I,
)
_NUMBER = (
    r"((?:9[5-8]0|10[3-8]0|16[3-6]0|20[5-8]0|30[5-9]0|40[5-9]0|50[5-9]0)(?: ?ti\b)?(?: ?super\b)?(?: ?laptop(?: gpu)?\b)?)"
)
_BARE = re.compile(
    r"(?:\b(?:nvidia|geforce|my|an?|single|dual|quad|multi|\d ?[x×*])[ -]?|[张块用])"
    + _NUMBER
    + r"(?![\d.]| ?mi?b| ?gb| ?mhz| ?%| ?it)"
    r"|\b" + _NUMBER + r"(?= ?(?:gpus?|cards?|rig|laptop|笔记本|显卡|的卡))",
    re.I,
)
_AMD = re.compile(
    r"\b(?:amd[ -])?(?:radeon(?:\(tm\))?[ -])?(?:rx[ -]?(?:vega[ -]?)?\d{2,4}(?:[ -]?(?:xtx|xt|gre|m|s)\b)?"
    r"|(?:instinct )?mi\d{2,3}[ax]?\b|pro w\d{4}x?)"
    r"|\bradeon(?:\(tm\))? (?:vii|pro \w{2,6}|vega \d+|\d{3,4}[ms]?|graphics(?: igpu)?)\b|\bryzen[ \w]{0,20} igpu\b"
    r"|\bamd igpu\b",
    re.I,
)
_INTEL = re.compile(
    r"\bintel(?:\(r\))? (?:corporation )?(?:(?:uhd|hd|iris)(?:\(r\))?(?: xe| plus)?(?: graphics)?(?: \w?\d{3,4})?"
    r"|arc(?: \w\d{3})?)",
    re.I,
)
_GFX = re.compile(r"\bgfx[0-9a-f]{3,5}\b", re.I)
_SM = re.compile(r"\bsm[_ ]?(\d{2,3})[af]?\b|\b(?:cuda |compute )?(?:capability|cc)[: ]*(?:of )?(\d{1,2}\.\d)\b", re.I)
_TIMES_BEFORE = re.compile(r"(\d{1,2}) ?[x×*] ?$|\b(two|three|four|eight|dual|quad) $", re.I)
_TIMES_AFTER = re.compile(r" ?[x×*] ?(\d{1,2})\b")
_WORDS = {"two": 2, "dual": 2, "three": 3, "four": 4, "quad": 4, "eight": 8}

# Graphics inside a processor: the names and the architectures that AMD gives them.
_INTEGRATED = re.compile(
    r"igpu|radeon graphics|radeon(?:\(tm\))? (?:[67][1-9]0m|8[89]0m|80[56]0s|vega \d)|\b(?:uhd|hd|iris)\b", re.I
)
INTEGRATED_GFX = frozenset(
    [
        "gfx902",
        "gfx909",
        "gfx90c",
        "gfx1013",
        "gfx1033",
        "gfx1035",
        "gfx1036",
        "gfx1037",
        "gfx1103",
        "gfx1150",
        "gfx1151",
        "gfx1152",
        "gfx1153",
    ]
)


def spot(text: str) -> list[Named]:
    """Every card that the text names, in its order; the same one once."""
    found: list[tuple[int, Named]] = []
    for pattern, vendor in ((_NVIDIA, "nvidia"), (_AMD, "amd"), (_INTEL, "intel")):
        found += [(m.start(), _named(text, m.start(), m.end(), m.group(), vendor)) for m in pattern.finditer(text)]
    taken = [(start, start + len(named.name)) for start, named in found]
    for pattern in (_SHORT, _BARE):
        for match in pattern.finditer(text):
            number = next(i for i in range(1, pattern.groups + 1) if match[i])
            start = match.start(number)
            if not any(begin <= start < end for begin, end in taken):
                found.append((start, _named(text, start, match.end(number), match[number], "nvidia")))
    unique: dict[str, Named] = {}
    for _, named in sorted(found, key=lambda pair: pair[0]):
        unique.setdefault(named.name, named)
    return list(unique.values())


def one(text: str) -> Named | None:
    """The card that a tool's line names; a name that is in no table is taken as it stands."""
    found = spot(text)
    if found:
        return found[0]
    plain = re.sub(r"\s*\(.*", "", text).strip()
    if re.match(r"(?:nvidia|geforce|quadro|tesla|amd|radeon|intel)\b", plain, re.I) and len(plain) < 80:
        vendor = "amd" if re.match(r"amd|radeon", plain, re.I) else "intel" if plain.lower().startswith("intel") else "nvidia"
        return _named(text, 0, len(plain), plain, vendor)
    if cards.find(plain):
        return Named(name=plain, vendor=cards.find(plain).vendor)  # type: ignore[union-attr]
    return None


def canonical(raw: str) -> str:
    """As a tool would print it, so that the table of cards knows it."""
    text = " ".join(raw.replace("\u00d7", "x").split())
    known = cards.find(text)
    if known:
        return text if " " in text else known.name
    plain = re.sub(r"(?i)^(nvidia|geforce)(?=\d)", r"\1 ", text)
    plain = re.sub(r"(?i)\b(rtx|gtx|gt|mx|pro)-?(?=a?\d)", r"\1 ", plain) if not re.search(r"(?i)\bmx\d", plain) else plain
    plain = re.sub(r"(?i)(\d)(ti|super|m)\b", lambda m: m[1] + (m[2] if m[2].lower() == "m" else " " + m[2]), plain)
    plain = re.sub(r"(?i)[ -]?(?:laptop gpu|laptop|mobile|notebook)$", " Laptop GPU", plain)
    plain = re.sub(r"(?i)[ -]max-?q$", " with Max-Q Design", plain)
    bare = re.sub(r"(?i)^(?:nvidia |geforce )+", "", plain)
    for attempt in (plain, f"RTX {bare}", f"GTX {bare}", f"GT {bare}", f"Tesla {bare}", re.sub(r"(?i) laptop gpu$", "", bare)):
        card = cards.find(attempt)
        if card:
            return card.name
    return plain


def capability_in(text: str) -> str | None:
    """ "sm_120", "cc 3.0", "compute capability 12.0", "gfx1100"."""
    gfx = _GFX.search(text)
    if gfx:
        return gfx.group().lower()
    match = _SM.search(text)
    if not match:
        return None
    return f"{match[1][:-1]}.{match[1][-1]}" if match[1] else match[2]


def _named(text: str, start: int, end: int, raw: str, vendor: str) -> Named:
    before, after = text[max(0, start - 8) : start], text[end : end + 60]
    beside = re.match(r" ?[(\[,]([^)\]\n]{0,50})", after)
    capability = capability_in(beside[1]) if beside else None
    integrated = bool(_INTEGRATED.search(raw)) or (capability or "") in INTEGRATED_GFX
    return Named(
        name=canonical(raw) if vendor == "nvidia" else " ".join(raw.split()),
        vendor=vendor,
        kind="integrated" if integrated else "discrete",
        count=_count(before, after),
        capability=capability,
        mig=bool(re.match(r"[ (]{0,2}mig\b", after, re.I)),
    )


def _count(before: str, after: str) -> int:
    match = _TIMES_BEFORE.search(before)
    if match:
        return min(int(match[1]) if match[1] else _WORDS[match[2].lower()], 16) or 1
    match = _TIMES_AFTER.match(after)
    return min(int(match[1]), 16) or 1 if match else 1
