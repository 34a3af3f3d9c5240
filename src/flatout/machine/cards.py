"""What is known of a card by its name."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from flatout.base.records import Struct
from flatout.data import table


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
    return _by_name().get(_plain(name))


def capability_of(name: str) -> str | None:
    card = find(name)
    return card.capability if card else None


@cache
def _by_name() -> dict[str, Card]:
    found: dict[str, Card] = {}
    for row in table("cards")["card"]:
        card = _card(row)
        for alias in (row["name"], *row.get("aliases", ())):
            found.setdefault(_plain(alias), card)
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
    """Without maker, brand, memory size and punctuation, so that what different tools print meets."""
    text = re.sub(r"\b(nvidia|geforce|corporation|graphics device)\b", " ", name.lower())
    text = re.sub(r"\b(\d+)\s*(gb|gib|g)\b", " ", text)
    return re.sub(r"[^a-z0-9]+", " ", text).strip()
