"""Finds keys, tokens and passwords in a command line and in the environment, so that they are never written down.

By their names (`--api-key`, `logger.token=`, `{"password": …}`, `WANDB_API_KEY`), by where they stand
(`https://user:password@host`), and by their look: keys of known makers, and long runs of letters and digits as only a
generator of random numbers writes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from urllib.parse import unquote

from flatout.base.printable import whole
from flatout.base.secret_forms import HIDDEN, SHORTEST, scrubbed

Span = tuple[int, int]

_KEYS = (
    "api|access|secret|private|auth|account|license|encryption|signing|service|wandb|comet|neptune|openai|hf|ssh|kaggle|aws|gcp"
    "|azure|storage|anthropic|clearml|mlflow|github|gitlab|google|master|root|admin|subscription|deploy|oauth|jwt|ssl|tls|gpg|pgp"
)
_PASSES = "db|ftp|http|smtp|proxy|mysql|pg|postgres|redis|mongo|user|admin|root"
_NAME = re.compile(
    rf"(?:^|[-_.\s])(?:(?:{_KEYS})[-_]?keys?(?:[-_]?id)?|\w*token|(?:{_KEYS}|refresh|bearer)[-_]?tokens"
    rf"|\w*pass(?:words?|wd|phrase|code)|pass|(?:{_PASSES})[-_]?pass|\w*pwd|\w*secrets?|credentials?|cookies?|authorization)$"
    rf"|(?:{_KEYS})[-_]?keys?$",
    re.I,
)
_SEVERAL = re.compile(r"(?:key|token|password|secret|credential|cookie)s$", re.I)
# A dictionary's key as often as a secret, or a user: the value must look like one.
_PERHAPS = re.compile(r"\w[-_]key$|(?:^|[-_.])(?:auth|user)$", re.I)
_OF_VERSIONS = re.compile(r"(?:commit|revision|rev|sha\d*|hash|digest|checksum|md5|etag|uuid)$", re.I)
# A value as harmless as these says nothing, whatever its name: `--pad-token 0`, `--auth-token none`, `--eos-token "</s>"`.
_PLAIN = re.compile(
    r"\d{1,4}|\d{1,6}:\d{1,6}|true|false|none|null|on|off|yes|no|auto|default|<[^<>]{1,40}>|\[[A-Z_]{1,20}\]|", re.I
)
_TOKEN = re.compile(r"token$", re.I)  # of a text, where it is a number

_OPTION = re.compile(r"(?P<name>[-+~]{0,2}[A-Za-z_][\w.@/-]{0,200})[=:](?P<value>.+)", re.S)
_INNER = re.compile(r"(?<![\w.-])(?P<name>[\w.-]{1,80})[\"']?\s{0,4}[=:]\s{0,4}")
_INNER_VALUE = re.compile(r"\"(?P<one>[^\"]{1,4000})\"|'(?P<two>[^']{1,4000})'|(?P<bare>[^\s,;&}\])\"']{1,4000})")
_HEADER = re.compile(r"\b(?:bearer|basic)\s+(?P<value>[\w.~+/=-]{8,})", re.I)
# With a password as far as the last @, which may stand in it; a port is no password, and what has none is a user or a token.
_ADDRESS = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}://(?!git@)(?P<value>[^\s/@:]{0,200}:(?!\d{1,5}(?:[/?#]|$))\S{1,1000}(?=@)|[^\s/@]{1,1000}(?=@))",
    re.I,
)
_BARE_ADDRESS = re.compile(
    r"(?<![\w./@:-])(?P<value>[\w.+-]{1,64}:[^\s/@:]{1,200})@(?!sha256)(?:[A-Za-z][\w-]*[.:/]|localhost)"
)
_QUERY = re.compile(
    r"[?&;](?P<name>[\w.-]{0,40}(?:token|key|sig|signature|password|secret|credential))=(?P<value>[^&;\s#]+)", re.I
)
_MAKERS = re.compile(
    r"\b(?P<value>sk-[\w-]{16,}|[sr]k_live_\w{16,}|hf_\w{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{30,}|npm_\w{30,}|pypi-[\w-]{30,}|nvapi-[\w-]{20,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]+)?)"
)
_MIXED = re.compile(r"[\w+/=-]{8,}")
_RUN = re.compile(r"[A-Za-z0-9+/]{20,}={0,2}")
_PATH = re.compile(r"(?:[\w-]+=)?(?:[/\\~.]|[A-Za-z]:[\\/])")
FEWEST_CHANGES = 4  # between letters and digits within one run: names of models and data have one or two
FOLDERS = 3  # times fewer changes has a run with slashes that is a path


def hide(words: Sequence[str]) -> list[str]:
    """The words with `***` in the place of what is secret, in UTF-8: fit to be written and shown."""
    known = secrets_in(words)
    spans = _spans_of(words)
    return [whole(scrubbed(_without(word, found), known)) for word, found in zip(words, spans, strict=True)]


def secrets_in(words: Sequence[str], environ: Mapping[str, str] | None = None) -> list[str]:
    """The longest first."""
    found = {word[start:end] for word, spans in zip(words, _spans_of(words), strict=True) for start, end in spans}
    for name, value in (environ or {}).items():
        found |= {value} if _is_named(name, value) else {value[start:end] for start, end in _by_place(value)}
    found |= {value[start:end] for value in found for start, end in _by_place(value)}  # Authorization: Bearer …
    found |= {value.partition(":")[2] for value in found}  # user:password
    found |= {unquote(value) for value in found}
    return sorted((value for value in found if len(value) >= SHORTEST and not _says_nothing(value)), key=len, reverse=True)


def _without(word: str, spans: Sequence[Span]) -> str:
    if not spans:
        return word
    between = zip([0, *(end for _, end in spans)], [*(start for start, _ in spans), len(word)], strict=True)
    return HIDDEN.join(word[start:end] for start, end in between)


def _spans_of(words: Sequence[str]) -> list[list[Span]]:
    """Of each word what is secret in it; no two overlap."""
    found: list[list[Span]] = []
    name = ""  # of the option before
    first = True  # of its values
    for word in words:
        option = _OPTION.fullmatch(word)
        if (
            name
            and not word.startswith("--")
            and (_is_named(name, word) if first or _SEVERAL.search(name) else _is_mixed(word))
        ):
            found.append([(0, len(word))])
            first = False
            continue
        if option is not None and _is_named(option["name"], option["value"]):
            found.append([option.span("value")])
        elif _OF_VERSIONS.search(name) or (option is not None and _OF_VERSIONS.search(option["name"])):
            found.append(_apart([*_by_place(word)]))
        else:
            found.append(_apart([*_by_place(word), *_by_randomness(word)]))
        if word.startswith("-") or option is not None:
            name, first = (word if option is None else "", True)
        else:
            first = False
    return found


def _apart(spans: list[Span]) -> list[Span]:
    kept: list[Span] = []
    for start, end in sorted(spans):
        if kept and start < kept[-1][1]:
            kept[-1] = (kept[-1][0], max(end, kept[-1][1]))
        else:
            kept.append((start, end))
    return kept


def _is_named(name: str, value: str) -> bool:
    """Whether a value of this name is a secret."""
    if _says_nothing(value) or (_TOKEN.search(name) and value.replace(".", "", 1).isdecimal()):
        return False
    if _NAME.search(name):
        return True
    return _PERHAPS.search(name) is not None and (_is_mixed(value) or (":" in value and not name.lower().endswith("key")))


def _is_mixed(value: str) -> bool:
    return _MIXED.fullmatch(value) is not None and not _PATH.match(value) and _changes(value) >= 2


def _by_place(word: str) -> Iterator[Span]:
    for part in (_ADDRESS, _BARE_ADDRESS, _QUERY, _MAKERS, _HEADER):
        yield from (match.span("value") for match in part.finditer(word))
    done = 0
    for match in _INNER.finditer(word):
        if match.start() < done or not (_NAME.search(match["name"]) or _PERHAPS.search(match["name"])):
            continue  # before its value is looked for: there may be thousands of names
        value = _INNER_VALUE.match(word, match.end())
        if value is not None and value.lastgroup is not None and _is_named(match["name"], value[value.lastgroup]):
            done = value.end()
            yield value.span(value.lastgroup)


def _by_randomness(word: str) -> Iterator[Span]:
    if not _PATH.match(word):  # folders have names of every kind
        yield from (match.span() for match in _RUN.finditer(word) if _is_random(match[0]))


def _is_random(run: str) -> bool:
    if _changes(run) < FEWEST_CHANGES or sum(map(str.isdigit, run)) < FEWEST_CHANGES - 1:
        return False
    kinds = ["digit" if one.isdigit() else "upper" if one.isupper() else "lower" for one in run if one.isalnum()]
    return "/" not in run or FOLDERS * sum(one != other for one, other in pairwise(kinds)) >= len(kinds)


def _changes(text: str) -> int:
    return sum(one.isdigit() != other.isdigit() for one, other in pairwise(text))


def _says_nothing(value: str) -> bool:
    return _PLAIN.fullmatch(value) is not None or _is_place(value)


def _is_place(value: str) -> bool:
    """PWD, `--credentials /home/me/key.json`: where a file lies is no secret, and what a trial met is told by its path.

    Keys in base64 begin with a slash at times, but not with the name of a folder that is there.
    """
    return os.path.isabs(value) and os.path.isdir(PurePath(*PurePath(value).parts[:2]))
