"""All messages of flatout by key, in English and Simplified Chinese. JSON output is never translated."""

from __future__ import annotations

import locale
import os
import tomllib
from functools import cache
from importlib import resources

from flatout.base.printable import printable

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
        shown = {name: printable(value) if isinstance(value, str) else value for name, value in params.items()}
        try:
            if text is not None:
                return text.format(**shown) if shown else text
        except (LookupError, ValueError, TypeError, AttributeError):
            pass  # a figure that is missing is no reason to end what somebody waits for
        # A sentence that is missing is our fault; a key says nothing to whoever reads it: what is known is said instead.
        known = ", ".join(printable(f"{name} {value}") for name, value in params.items())
        return catalogue(self.language)["words.missing"].format(known=known or key.rpartition(".")[2].replace("-", " "))

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
