"""Parses the value that a user writes for a knob; a wrong one ends in a sentence with the nearest allowed value."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from flatout.base.errors import UnknownNameError, UsageError
from flatout.knobs import catalogue
from flatout.knobs.model import Knob

Written = str | int | float | bool

YES = ("true", "on", "yes")
NO = ("false", "off", "no", "none")

# What a plain "yes" chooses, for knobs that have more than one way of being on.
YES_MEANS = {"precision": "auto", "compile": "default", "allocator": "expandable"}
OTHER_SPELLINGS = {"precision": {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "fp32": "no", "float32": "no"}}

# The script as it is: nothing is put on.
UNTOUCHED = ("off", "no", "script")

# Knobs that say nothing without workers.
NEED_WORKERS = ("persistent_workers", "prefetch_factor")


def known(name: str, where: str) -> Knob:
    """`where` is what the user can change: a flag, or a file."""
    knob = catalogue.find(name.strip().lower().replace("-", "_"))
    if knob is not None:
        return knob
    near = difflib.get_close_matches(name, [knob.name for knob in catalogue.KNOBS], n=1)
    if near:
        raise UnknownNameError("error.knob-unknown-near", where=where, name=name, near=near[0])
    raise UnknownNameError("error.knob-unknown", where=where, name=name)


def meant(knob: Knob, written: Written, where: str) -> str:
    """The one spelling of this value, or a sentence that names the nearest."""
    text = str(written).strip().lower()
    text = OTHER_SPELLINGS.get(knob.name, {}).get(text, text)
    if text == knob.default:
        return text
    if limits := span(knob):
        return _number(knob, text, limits, where)
    if text in YES:
        text = YES_MEANS.get(knob.name, "on")
    elif text in NO:
        text = "no" if "no" in knob.domain else "off"
    if text in knob.domain:
        return text
    near = difflib.get_close_matches(text, knob.domain, n=1)
    key = "error.knob-value-near" if near else "error.knob-value"
    raise UsageError(
        key, where=where, name=knob.name, value=str(written), values=", ".join(knob.domain), near=near[0] if near else ""
    )


def span(knob: Knob) -> tuple[int, int] | None:
    """(lowest, highest) of a knob that takes whole numbers."""
    low, dots, high = knob.domain[0].partition("..")
    return (int(low), int(high)) if dots else None


def _number(knob: Knob, text: str, limits: tuple[int, int], where: str) -> str:
    low, high = limits
    try:
        number = int(text)
    except ValueError:
        raise UsageError("error.knob-number", where=where, name=knob.name, value=text, low=low, high=high) from None
    if not low <= number <= high:
        nearest = min(max(number, low), high)
        raise UsageError("error.knob-range", where=where, name=knob.name, value=text, low=low, high=high, near=nearest)
    return str(number)


def put_on(values: Mapping[str, str]) -> dict[str, str]:
    """Those that change something; the rest means the script as it is."""
    return {name: value for name, value in values.items() if value not in UNTOUCHED}


def check_together(values: Mapping[str, str], where: str) -> None:
    """Values that cannot both be meant are named, with both of them."""
    wanted = put_on(values)
    for name in NEED_WORKERS:
        if name in wanted and wanted.get("workers") == "0":
            raise UsageError(
                "error.knobs-contradict",
                where=where,
                one=name,
                value=wanted[name],
                other="workers",
                other_value=wanted["workers"],
            )
