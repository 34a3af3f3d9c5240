"""What must not be written down: words of a command line, or of the environment, that are keys, tokens or passwords.

By their names (`--api-key`, `logger.token=`, `WANDB_API_KEY`), by where they stand (`https://user:password@host`), and by their
look: keys of known makers, and long runs of letters and digits as only a generator of random numbers writes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath

from flatout.base.printable import whole

HIDDEN = "***"
SHORTEST = 6  # characters of what is looked for elsewhere: anything shorter stands in a text by chance

_KEYS = "api|access|secret|private|auth|account|license|encryption|signing|service|wandb|comet|neptune|openai|hf|ssh"
_NAME = re.compile(
    rf"(?:^|[-_.\s])(?:(?:{_KEYS})[-_]?key(?:[-_]?id)?|\w*token|pass(?:word|wd|phrase)?|\w*password|pwd|\w*secret|credentials?)$"
    rf"|(?:{_KEYS})[-_]?key$",
    re.I,
)
# A value as harmless as these says nothing, whatever its name: `--pad-token 0`, `--auth-token none`.
_PLAIN = re.compile(r"\d{1,4}|true|false|none|null|on|off|yes|no|", re.I)
_OPTION = re.compile(r"(?P<name>[-+~]{0,2}[A-Za-z_][\w.@/-]{0,200})(?P<between>[=:])(?P<value>.+)", re.S)
_ADDRESS = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]{1,20}://)(?P<value>[^\s/@]{1,1000})(?=@)", re.I)
_QUERY = re.compile(
    r"(?<=[?&;])(?P<name>[\w.-]{0,40}(?:token|key|sig|signature|password|secret|credential))=(?P<value>[^&;\s#]+)", re.I
)
_MAKERS = re.compile(
    r"\b(?:sk-[\w-]{16,}|hf_\w{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}"
    r"|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]+)?)"
)
_RUN = re.compile(r"[A-Za-z0-9+]{20,}={0,2}")
_PATH = re.compile(r"(?:[\w-]+=)?(?:[/\\~.]|[A-Za-z]:[\\/])")
FEWEST_CHANGES = 4  # between letters and digits within one run: names of models and data have one or two


def hide(words: Sequence[str]) -> list[str]:
    """The words with `***` in the place of what is secret, in UTF-8: fit to be written and shown."""
    known = secrets_in(words)
    return [whole(scrubbed(word, known)) for word in _hidden_one_by_one(words)]


def secrets_in(words: Sequence[str], environ: Mapping[str, str] | None = None) -> list[str]:
    """The longest first, so that none hides a part of another."""
    found = {value for name, value in (environ or {}).items() if _NAME.search(name) and not _is_place(value)}
    for word, hidden in zip(words, _hidden_one_by_one(words), strict=True):
        before, after = hidden.split(HIDDEN)[0], hidden.split(HIDDEN)[-1]
        if HIDDEN in hidden and hidden.count(HIDDEN) == 1:
            found.add(word[len(before) : len(word) - len(after)])
        elif HIDDEN in hidden:
            found |= set(_by_look(word))
    found |= {value.partition(":")[2] for value in found}  # user:password
    return sorted((value for value in found if len(value) >= SHORTEST and not _PLAIN.fullmatch(value)), key=len, reverse=True)


def _hidden_one_by_one(words: Sequence[str]) -> list[str]:
    found: list[str] = []
    named = False
    for word in words:
        option = _OPTION.fullmatch(word)
        if named and not word.startswith("--") and not _says_nothing(word):
            found.append(HIDDEN)
        elif option is not None and _NAME.search(option["name"]) and not _says_nothing(option["value"]):
            found.append(f"{option['name']}{option['between']}{HIDDEN}")
        else:
            found.append(scrubbed(word, _by_look(word)))
        named = word.startswith("-") and option is None and _NAME.search(word) is not None
    return found


def _says_nothing(value: str) -> bool:
    return _PLAIN.fullmatch(value) is not None or _is_place(value)


def _is_place(value: str) -> bool:
    """PWD, `--credentials /home/me/key.json`: where a file lies is no secret, and what a trial met is told by its path.

    Keys in base64 begin with a slash at times, but not with the name of a folder that is there.
    """
    return os.path.isabs(value) and os.path.isdir(PurePath(*PurePath(value).parts[:2]))


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """A text without these values."""
    for value in secrets:
        text = text.replace(value, HIDDEN)
    return text


def _by_look(word: str) -> list[str]:
    found = [match["value"] for part in (_ADDRESS, _QUERY) for match in part.finditer(word)]
    found += [match[0] for match in _MAKERS.finditer(word)]
    if not _PATH.match(word):  # folders have names of every kind
        found += [match[0] for match in _RUN.finditer(word) if _is_random(match[0])]
    return sorted(found, key=len, reverse=True)


def _is_random(run: str) -> bool:
    digits = [character.isdigit() for character in run]
    changes = sum(one != other for one, other in pairwise(digits))
    return changes >= FEWEST_CHANGES and sum(digits) >= FEWEST_CHANGES - 1
