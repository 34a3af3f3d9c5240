"""From what people paste to plain text: codes, quotes, entities and hard wraps taken away."""

from __future__ import annotations

import html
import re

from flatout.base.records import Struct

# Enough for every report that a person wrote or a tool printed; a log of megabytes says what matters at its ends.
HEAD, TAIL = 100_000, 60_000
# Text has next to no control characters; a tenth of that is already a file that is none.
MOST_CONTROL = 0.02
# No field of any report is longer. A pattern may look at a long run once for each of its characters.
_DIGITS = re.compile(r"(\d{48})\d+")
_BLANKS = re.compile(r"([ \t]{240})[ \t]+")
_WORD = re.compile(r"([^ \t\n]{2000})[^ \t\n]+")
_LINE = re.compile(r"([^\n]{8000})(?=[^\n])")
MOST_FIELDS = 64  # of the same text: one for every card of a large machine
NARROWEST_WRAP, WIDEST_WRAP = 20, 240

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][A-Z0-9])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f�\ud800-\udfff\ue000-\uf8ff]")
_TAG = re.compile(r"</?(?:br|p|code|pre|div|span|details|summary|li|ul|td|tr|b|i|a)\b[^<>\n]{0,200}>", re.I)
_QUOTE = re.compile(r"^(?:[ \t]{0,8}[>|│┃] ?)+")
_BAR_END = re.compile(r"[ \t]*[|│┃][ \t]*$")
_MARKDOWN = re.compile(r"\*\*|`+|^[ \t]*#{1,6} ", re.M)
# The fields of an object in one line are lines of their own.
_JSON = re.compile(r"(?<=[\w\"\]}]), ?(?=\"\w{2,40}\": )|\{(?=\"\w{2,40}\":)|(?<=[\"\]\w])\}(?=\s|$|,)")
# A sentence ends, a list item or a `key: value` line begins: what stands on either side says different things.
_SENTENCE = re.compile(r"(?<=[a-z0-9)\"'][.!?]) (?=[A-Z\"'(])")
_STARTS = re.compile(r"[-*•+=>$#(\[]|\d+[.)] |[\w.][\w ./()_-]{0,40}[:=] |\w+(?:Error|Warning|Exception)\b")
# `Key      : value` of nvidia-smi -q, `Key:      value` of lscpu, collect_env's labels, pip's lines, variables.
_LISTING = re.compile(
    r"\s*(?:[A-Z][\w ./()#-]{1,60}?(?: {2,}: |: {2,}\S)|\[(?:pip3?|conda)\]|Vulnerability |Flags:|Caching allocator config"
    r"|Is \w+ available"
    r"|\w+ (?:runtime )?version: (?:N/A|Could not)|GPU models and conf|[A-Z][A-Z0-9_]{3,40}=\S*$|[|+][-=+|]{8,}|\|.*\|)"
)
# What begins a line of its own even where the one before it happens to be as long as the longest.
_FRESH = re.compile(rf"{_STARTS.pattern}|/\w|[\w.-]+==|GPU \d|\d+: |File \"")
# Torch says this under every shortage of memory, whatever its cause.
_HINT = re.compile(r"if reserved (?:but unallocated )?memory is[^\n]{0,160}?fragmentation[^\n]{0,120}")
_SPACES = re.compile(r"[ \t|│┃]+")

# Wide punctuation that stands where a tool prints a narrow one, and what no eye sees.
_NARROW = str.maketrans(
    {
        "：": ":",
        "（": "(",
        "）": ")",
        "，": ",",
        "；": ";",
        "＝": "=",
        "％": "%",
        "＋": "+",
        "［": "[",
        "］": "]",
        "“": '"',
        "”": '"',
        "‘": "'",
        "’": "'",
        "\u00a0": " ",
        "\u3000": " ",
        "\u200b": None,
        "\u200c": None,
        "\u200d": None,
        "\u2060": None,
        "\ufeff": None,
        "İ": "I",  # the one letter whose lower case is longer: offsets must stay
    }
)


class Text(Struct, frozen=True, kw_only=True):
    lines: list[str]  # without quotes and frames, in their own case
    flat: str  # statements, one a line, single spaces
    lower: str  # the same in lower case, character for character
    said: str  # of that, what people say: without the lines of tables and listings, whose words are labels
    tokens: str  # everything in one line: tables that somebody's mailer has wrapped can still be read


def clean(raw: str) -> Text | None:
    """None where this is no text."""
    text = _bounded(_cut(raw).replace("\0", ""))
    if not text or len(_CONTROL.findall(text)) > MOST_CONTROL * len(text):
        return None
    text = _ANSI.sub("", text)
    if "&" in text:
        text = html.unescape(text)
    text = _TAG.sub("\n", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = _CONTROL.sub("", text.translate(_NARROW))
    text = _bounded(_JSON.sub("\n", _MARKDOWN.sub("", text)))
    lines = _unwrapped([_unquoted(line) for line in text.split("\n")])
    lines = _once(lines)
    bare = [_BAR_END.sub("", _QUOTE.sub("", line)).rstrip() for line in lines]
    flat = _statements(bare)
    said = _statements([text for text, label in zip(bare, _labels(lines, bare), strict=True) if not label])
    return Text(lines=bare, flat=flat, lower=flat.lower(), said=_HINT.sub("", said.lower()), tokens=re.sub(r"\s+", " ", flat))


def _labels(lines: list[str], bare: list[str]) -> list[bool]:
    """Which lines belong to a listing; a heading in it is indented and has a line of the listing below it."""
    pairs = zip(lines, bare, strict=True)
    found = [_framed(line) or (_LISTING.match(line) or _LISTING.match(text)) is not None for line, text in pairs]
    for index in range(len(lines) - 2, -1, -1):
        found[index] = found[index] or (found[index + 1] and lines[index].startswith("    "))
    return found


def _bounded(text: str) -> str:
    """Runs of digits, of blanks and of anything else, and lines: none without end."""
    for pattern in (_DIGITS, _BLANKS, _WORD):
        text = pattern.sub(r"\1", text)
    return _LINE.sub(r"\1\n", text)


def _cut(raw: str) -> str:
    """Head and tail, each at the end of a line."""
    if len(raw) <= HEAD + TAIL:
        return raw
    head, tail = raw[:HEAD], raw[-TAIL:]
    return head[: head.rfind("\n") + 1 or HEAD] + "\n" + tail[tail.find("\n") + 1 :]


def _unquoted(line: str) -> str:
    """Without the mailer's `>`; the bars of a table stay, for they show where its lines end."""
    stripped = line.lstrip(" \t")
    while stripped.startswith(">") and not stripped.startswith(">>>"):
        line = stripped[1:]
        line = line.removeprefix(" ")
        stripped = line.lstrip(" \t")
    return line.rstrip()


def _unwrapped(lines: list[str]) -> list[str]:
    """Lines that a terminal has broken at its edge, whole again."""
    width = max((len(line) for line in lines), default=0)
    full = sum(1 for line in lines if len(line) == width)
    if not NARROWEST_WRAP <= width <= WIDEST_WRAP or full < 2 or all(_framed(line) for line in lines if len(line) == width):
        return lines
    found: list[str] = []
    open_end = False
    for line in lines:
        if open_end and line and line[0] not in " \t" and not _FRESH.match(line):
            found[-1] += line
        else:
            found.append(line)
        open_end = len(line) == width and not _framed(found[-1])
    return found


def _framed(line: str) -> bool:
    """A whole row of a table: it fills its width because it was made so."""
    text = line.strip()
    return len(text) > 1 and text[0] in "+|│┃" and text[-1] in "+|│┃"


def _once(lines: list[str]) -> list[str]:
    """A log says the same thousands of times; twice is as good."""
    seen: dict[str, int] = {}
    found = []
    for line in lines:
        count = seen.get(line, 0)
        seen[line] = count + 1
        # Short lines are the fields of a listing for several cards: those repeat with reason.
        if count < (2 if len(line) >= 100 else MOST_FIELDS) or not line:
            found.append(line)
    return found


def _statements(lines: list[str]) -> str:
    parts: list[str] = []
    for line in lines:
        text = _SPACES.sub(" ", line).strip()
        if not text:
            parts.append("\n")
        elif parts and parts[-1] != "\n" and not _STARTS.match(text):
            parts.append(" " + text)
        else:
            parts.append(("\n" if parts and parts[-1] != "\n" else "") + text)
    flat = re.sub(r"\n+", "\n", "".join(parts)).strip()
    flat = _SENTENCE.sub("\n", flat)
    return re.sub(r"(?<=[。!?！？;])\s?(?=[一-鿿])", "\n", flat)
