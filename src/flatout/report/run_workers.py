"""Sentences about workers: whether they stayed alive at epoch boundaries, and how many validation DataLoaders have."""

from __future__ import annotations

from typing import Any

from flatout.base.words import Words


def told(details: dict[str, Any], words: Words) -> list[str]:
    """From what the agent saw of the knob `workers`."""
    return [said for said in (turns(details, words), _evaluation(details, words)) if said]


def turns(details: dict[str, Any], words: Words) -> str:
    """Empty where no epoch has followed another."""
    kept, fresh = (_count(details.get(name)) for name in ("turns_kept", "turns_fresh"))
    if not kept and not fresh:
        return ""
    key = ("none" if not kept else "some" if fresh > 1 else "all-but-one") if fresh else "all"
    single = "-single" if kept + fresh == 1 else ""
    return words(f"epoch-ends.{key}{single}", kept=kept, fresh=fresh, ends=kept + fresh, why=_why(details, words))


def _why(details: dict[str, Any], words: Words) -> str:
    """One that this flatout does not know is shown as it is: an agent may be newer."""
    code, what = str(details.get("fresh_because") or ""), str(details.get("fresh_what") or "?")
    return words(f"renewal.{code}", what=what) if words.has(f"renewal.{code}") else code or "?"


def _evaluation(details: dict[str, Any], words: Words) -> str:
    loaders, workers = (_count(details.get(name)) for name in ("evaluation_loaders", "evaluation_workers"))
    if not loaders or not workers:
        return ""
    return words("evaluation-workers.one" if loaders == 1 else "evaluation-workers.several", loaders=loaders, workers=workers)


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0
