"""What somebody asked pip for and did not get: what the rules on installing share."""

from __future__ import annotations

import re

from flatout.base.records import Struct
from flatout.doctor import queries
from flatout.machine.machine_facts import Facts

# Where pip and uv take their index from when the command names none.
INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")

PYTORCH_INDEX = re.compile(r"(?:^|/)(cu\d{2,3}|cpu|xpu|rocm[\d.]+)(?:$|[/\s])")


class Request(Struct, kw_only=True):
    version: str | None  # of torch, without the variant
    variant: str | None  # "cu128", from the index or from the version ("2.7.1+cu128")
    index: str | None


def refused(facts: Facts) -> Request | None:
    """The torch that pip did not find."""
    said = queries.symptom(facts, "no-matching-distribution")
    if said is None:
        return None
    requirement = str(said.params.get("requirement", "torch"))
    if not re.match(r"(torch|torchvision|torchaudio)\b", requirement):
        return None
    index = str(said.params.get("index", "")) or index_of(facts)
    exact = re.search(r"torch\s*===?\s*(\d[\w.]*)(?:\+(\w+))?", requirement) if requirement.startswith("torch") else None
    named = PYTORCH_INDEX.search(index) if index else None
    variant = named[1] if named else (exact[2] if exact else None)
    version = exact[1] if exact and not re.match(r"torch(vision|audio)", requirement) else None
    return Request(version=version, variant=variant, index=index)


def index_of(facts: Facts) -> str | None:
    """The index that the environment sets, where it is one of PyTorch's."""
    values = [facts.application.environment.get(name, "") for name in INDEX_VARIABLES]
    return next((value for value in values if PYTORCH_INDEX.search(value)), None)


def listed_versions(facts: Facts) -> list[str]:
    """What pip said it could have: "(from versions: 0.1.2, 0.1.2.post1)"; empty for none and where it did not say."""
    said = queries.symptom(facts, "no-matching-distribution")
    return re.findall(r"\d[\w.]*", str(said.params.get("versions", ""))) if said else []
