"""All rules, found by their files: one file per rule in `rules/`, each with a `RULE`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from flatout.doctor import rules
from flatout.doctor.model import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    found = [importlib.import_module(f"{rules.__name__}.{module.name}").RULE for module in pkgutil.iter_modules(rules.__path__)]
    return tuple(sorted(found, key=lambda rule: rule.code))


def find(name: str) -> Rule | None:
    """By code or by name, in any case."""
    wanted = name.lower()
    return next((rule for rule in all_rules() if wanted in (rule.code.lower(), rule.name)), None)
