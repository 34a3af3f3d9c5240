"""What is known of a card by its name."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from flatout.base.records import Struct
from flatout.data import table

# Capability by chip or series, for the many names that have no row of their own: the first pattern that matches counts.
# From NVIDIA's lists of current and legacy CUDA GPUs. Where a series has two, the lower one: code for it runs on both.
SERIES = (
    (r"\bgb20[2-7]", "12.0"),
    (r"\bgb10[02]\b", "10.0"),
    (r"\bgh100", "9.0"),
    (r"\bad10\d", "8.9"),
    (r"\bga100", "8.0"),
    (r"\bga10\d", "8.6"),
    (r"\btu1\d\d", "7.5"),
    (r"\bgv100", "7.0"),
    (r"\bgp100", "6.0"),
    (r"\bgp10\d", "6.1"),
    (r"\bgm20\d", "5.2"),
    (r"\bgm10\d", "5.0"),
    (r"\bgk210", "3.7"),
    (r"\bgk(110|180|208)", "3.5"),
    (r"\bgk10\d", "3.0"),
    (r"\brtx pro \d", "12.0"),
    (r"\brtx 50[5-9x]", "12.0"),
    (r"\bada( generation)?\b", "8.9"),
    (r"\brtx 40[5-9x]", "8.9"),
    (r"\brtx 30[5-9x]|\brtx a\d{3,4}|\bmx570", "8.6"),
    (r"\bquadro rtx|\brtx 20[6-8x]|\bgtx 16\d|\bmx[45]50|\b(quadro )?t[1-9]\d{2,3}\b", "7.5"),
    (r"\bquadro p\d|\bgtx? 10\d\d|\bmx(150|[23]\d0)|\btesla p4|\btitan xp?\b.*pascal", "6.1"),
    (r"\bgtx 9[56]0m|\b9[34]0mx?\b|\bgtx? 7(45|50)( ti)?$|\bmx1[13]0|\bquadro m\d", "5.0"),
    (r"\bgtx 9\d\d|\btesla m\d", "5.2"),
    (r"\bgt 7[123]\d|\bgtx 780|\btesla k[24]0", "3.5"),
    (r"\bg(t|tx|ts) [67]\d\d|\bquadro k\d|\btesla k10|\bgrid k", "3.0"),
    (r"\bg(t|tx|ts) [45]\d\d", "2.1"),
    (r"\bp100\b", "6.0"),
    (r"\bv100s?\b", "7.0"),
    (r"\ba100\b|\ba800\b|\ba30\b", "8.0"),
    (r"\ba10g?\b|\ba16\b|\ba40\b", "8.6"),
    (r"\bl4\b|\bl20\b|\bl40s?\b", "8.9"),
    (r"\bg?h[128]00\b|\bh20\b|\bh200\b", "9.0"),
    (r"\bg?b[12]00\b", "10.0"),
)


class Card(Struct, frozen=True, kw_only=True):
    name: str
    family: str  # geforce, laptop, workstation, datacenter, jetson
    vendor: str
    capability: str | None
    memory_gib: tuple[float, ...]
    bandwidth_gb_s: float | None
    fp32_tflops: float | None
    tf32_tflops: float | None
    bf16_tflops: float | None
    fp16_tflops: float | None
    tensor_cores: bool | None
    source: str
    verified: bool

    @property
    def discrete(self) -> bool:
        return self.family != "jetson"


def find(name: str) -> Card | None:
    """The card that a tool calls `name` ("NVIDIA GeForce RTX 4090", "Tesla T4", "H100 80GB HBM3")."""
    plain = _plain(name)
    return _by_name().get(plain) or _by_name().get(_without_memory(plain))


def capability_of(name: str) -> str | None:
    card = find(name)
    if card:
        return card.capability
    plain = _plain(name)
    return next((capability for pattern, capability in SERIES if re.search(pattern, plain)), None)


@cache
def _by_name() -> dict[str, Card]:
    """With the memory size for cards that come in two kinds; without it for tools that do not print it."""
    found: dict[str, Card] = {}
    rows = [(_plain(alias), _card(row)) for row in table("cards")["card"] for alias in (row["name"], *row.get("aliases", ()))]
    for plain, card in rows:
        found.setdefault(plain, card)
    for plain, card in rows:
        found.setdefault(_without_memory(plain), card)
    return found


def _card(row: dict[str, Any]) -> Card:
    return Card(
        name=row["name"],
        family=row["family"],
        vendor=row["vendor"],
        capability=row.get("capability"),
        memory_gib=tuple(row.get("memory_gib", ())),
        bandwidth_gb_s=row.get("bandwidth_gb_s"),
        fp32_tflops=row.get("fp32_tflops"),
        tf32_tflops=row.get("tf32_tflops"),
        bf16_tflops=row.get("bf16_tflops"),
        fp16_tflops=row.get("fp16_tflops"),
        tensor_cores=row.get("tensor_cores"),
        source=row["source"],
        verified=row["verified"],
    )


def _plain(name: str) -> str:
    """Without maker, brand, slice and punctuation, so that what different tools print meets."""
    text = re.sub(r"\b(nvidia|geforce|corporation|graphics device)\b", " ", name.lower())
    text = re.sub(r"\bmig \d.*|\(rev [0-9a-f]+\)", " ", text)
    text = re.sub(r"\b(rtx|gtx|gt)(\d)", r"\1 \2", text)
    text = re.sub(r"(\d)(ti|super)\b", r"\1 \2", text)
    text = re.sub(r"(\d)\s+(gb|gib)\b", r"\1gb", text)
    return re.sub(r"[^a-z0-9]+", " ", text).strip()


def _without_memory(plain: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\b\d+(gb|gib|g)\b", " ", plain)).strip()
