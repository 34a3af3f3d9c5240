"""The page of a rule: its words in one language, in one file.

+++
title = "PyTorch was built without CUDA"
says = "torch {version} has no CUDA support, although {gpu} is in this machine."

[fix]
reinstall = "Install the build for CUDA {cuda}."
+++
## What it is
…
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

from flatout.base.records import Struct
from flatout.doctor.model import Fix

HEADINGS = {
    "en": ("What it is", "Why it happens", "How to see it", "How to repair it", "References"),
    "zh": ("是什么", "为什么", "如何确认", "如何修复", "参考"),
}

FENCE = "+++\n"


class Page(Struct, kw_only=True):
    title: str  # the defect as a headline
    says: str  # one sentence with the evidence in it
    says_measured: str | None = None  # the same where a run has measured it, with file and line
    fix: dict[str, str]
    body: str  # markdown, the five headings

    def sentence(self, values: dict[str, object]) -> str:
        """The most telling sentence whose values are all known; the title where there is none."""
        shown = {name: _shown(value) for name, value in values.items()}
        for template in (self.says_measured, self.says):
            try:
                if template is not None:
                    return template.format(**shown)
            except (KeyError, IndexError):
                continue
        return self.title

    def step(self, fix: Fix) -> str:
        """One step of a repair: a command as it is typed, or its sentence with its values."""
        if fix.command is not None:
            return fix.command
        text = self.fix.get(fix.text or "", fix.text or "")
        try:
            return text.format(**fix.params)
        except (KeyError, IndexError):
            return text


@cache
def read(code: str, language: str) -> Page:
    _, head, body = _text(language, f"{code}.md").split(FENCE, 2)
    table = tomllib.loads(head)
    fix = {**tomllib.loads(_text(language, "shared.toml"))["fix"], **table.get("fix", {})}
    return Page(title=table["title"], says=table["says"], says_measured=table.get("says_measured"), fix=fix, body=body.strip())


def _text(language: str, name: str) -> str:
    return resources.files(__package__).joinpath("pages", language, name).read_text(encoding="utf-8")


def _shown(value: object) -> str:
    return ", ".join(str(item) for item in value) if isinstance(value, list) else str(value)
