"""CUDA's errors, by number, by name and by sentence."""

from __future__ import annotations

import re
from functools import cache

from flatout.data import table
from flatout.doctor.paste.clean import Text
from flatout.doctor.paste.draft import Draft, Rank

# CUDA 10.0 and older counted otherwise.
OLD = {10: 101, 30: 999, 38: 100, 48: 209, 77: 700, 59: 710, 39: 214, 8: 98, 4: 719, 99: 999}

_SENTENCES = (
    (46, r"cuda-capable device(?:s|\(s\))? (?:is/are|is|are) busy|busy or unavailable"),
    (100, r"no cuda-capable device is detected"),
    (802, r"system not yet initialized"),
    (803, r"unsupported display driver / cuda driver combination"),
    (804, r"forward[- ]compatib\w+[^\n]{0,24}(?:attempted|error|not supported|fail|unsupported)"),
    (999, r"cuda[^\n]{0,30}unknown[ _]error|unknown[ _]error[^\n]{0,12}\(?\b99\b|\bcuda_error_unknown\b"),
    (214, r"uncorrectable ecc error encountered"),
    (209, r"no kernel image is available"),
    (101, r"invalid device ordinal"),
    (222, r"ptx was compiled with an unsupported toolchain"),
    (35, r"driver version is insufficient for (?:the )?cuda runtime"),
    (710, r"device-side assert triggered"),
    (700, r"illegal memory access was encountered"),
    (719, r"unspecified launch failure"),
    (715, r"illegal instruction was encountered"),
    (716, r"cuda error: misaligned address"),
    (34, r"cuda driver is a stub library"),
    (702, r"launch timed out and was terminated"),
    (98, r"cuda error: invalid device function"),
)
_NUMBERED = re.compile(
    r"\b(?:unexpected error from cudagetdevicecount\(\)[^\n]{0,20}?)?\berror (\d{1,3}): "
    r"|\b(?:cuda|cuda driver|cudnn)[ _]?(?:error|err)(?:[ _]?code)?\s?(?:=|:|is|\()\s?(\d{1,3})\b"
    r"|\berror:? (80[234]|999)\b"
    r"|\bcuda (?:runtime |driver |init\w* )?error (?:code |number )?(\d{2,3})\b"
    r"|\bcuinit\b[^\n]{0,50}?\b(?:error |code |returns? |returned |= ?|: ?|\()(\d{1,3})\b"
    r"|\bcudagetdevicecount\b[^\n]{0,50}?\b(?:error |code |returns? |returned )(\d{1,3})\b"
    r"|\bcuda_error_\w{3,40}\s?\(?(\d{1,3})\)?"
    r"|错误(?:码|代码|号)?\s?[::]?\s?(\d{3})\b"
)
_OLD = re.compile(r"cuda runtime error \((\d{1,3})\)|cudasuccess \((\d{1,3}) vs\.? 0\)|unknown_error\((\d{2,3})\)")
_INIT = re.compile(r"\bcuinit\b[^\n]{0,60}?\b(\d{3})\b")


def read(text: Text, draft: Draft) -> None:
    lower = text.lower
    found = [code for code, pattern in _sentences() if pattern.search(lower)]
    found += [OLD.get(number, number) for number in _all(_OLD, lower)]
    found += [number for number in _all(_NUMBERED, lower) if number in _known()]
    found += [code for name, code in _names().items() if name in lower]
    for code in dict.fromkeys(found):
        draft.symptom("cuda-error", code=code)
        draft.put("torch.error_code", code, Rank.SAID)
    init = _INIT.search(lower)
    if init and int(init[1]) in _known():
        draft.put("cuda.init_code", int(init[1]), Rank.SAID)


def _all(pattern: re.Pattern[str], lower: str) -> list[int]:
    return [int(next(group for group in match.groups() if group)) for match in pattern.finditer(lower)]


@cache
def _sentences() -> tuple[tuple[int, re.Pattern[str]], ...]:
    return tuple((code, re.compile(text.replace(" ", r"\s"))) for code, text in _SENTENCES)


@cache
def _known() -> frozenset[int]:
    return frozenset(int(row["code"]) for row in table("drivers")["error"])


@cache
def _names() -> dict[str, int]:
    rows = table("drivers")["error"]
    return {
        str(row[key]).lower(): int(row["code"])
        for row in rows
        for key in ("name", "driver_name")
        if "rror" in str(row.get(key, "")).lower()
    }
