"""What flatout says, by key, in English and Simplified Chinese. JSON output never passes through here."""

from __future__ import annotations

import locale
import os
import tomllib
from functools import cache
from importlib import resources

LANGUAGES = ("en", "zh")


@cache
def catalogue(language: str) -> dict[str, str]:
    text = resources.files(__package__).joinpath(f"{language}.toml").read_text(encoding="utf-8")
    return _flatten(tomllib.loads(text))


def _flatten(tree: dict[str, object], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            flat.update(_flatten(value, f"{key}."))
        else:
            flat[key] = str(value)
    return flat


class Words:
    """The catalogue of one language: `words("run.steps", count=100)`."""

    def __init__(self, language: str) -> None:
        self.language = language if language in LANGUAGES else "en"

    def __call__(self, key: str, **params: object) -> str:
        text = catalogue(self.language).get(key)
        if text is None:
            text = catalogue("en").get(key)
        if text is None:
            # A key without a sentence is our fault: still say what is known rather than fail.
            return f"{key} {params}" if params else key
        try:
            return text.format(**params) if params else text
        except (KeyError, ValueError):  # nor is a figure that is missing a reason to end what somebody waits for
            return f"{key} {params}"

    def has(self, key: str) -> bool:
        return key in catalogue(self.language)


def choose_language(asked: str | None, environ: dict[str, str] | None = None) -> str:
    """`--lang`, else FLATOUT_LANG, else the locale, else English."""
    environ = dict(os.environ) if environ is None else environ
    names = [asked, *(environ.get(name) for name in ("FLATOUT_LANG", "LC_ALL", "LC_MESSAGES", "LANG"))]
    for name in names:
        if name:
            return "zh" if _is_chinese(name) else "en"
    return "zh" if _is_chinese(locale.getlocale()[0] or "") else "en"


def _is_chinese(name: str) -> bool:
    # Windows says "Chinese (Simplified)_China" where POSIX says "zh_CN.UTF-8".
    return name.lower().startswith(("zh", "chinese"))
