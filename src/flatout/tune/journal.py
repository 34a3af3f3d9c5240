"""The journal of a search as lines of JSON: the plan, then one line after each segment, then the end.

Whoever writes a line puts it on the disk before the next segment begins. A search is a function of its plan and the results
so far, so these lines are all that `--resume` needs; decisions stand in them for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import ClassVar

from flatout.base.errors import RecordError
from flatout.base.records import Record, decode, dump, field
from flatout.tune.model import Decision, Plan, Segment, SegmentResult


class TuneLine(Record):
    """One line: a plan, or a segment with its result and the decisions that followed."""

    KIND: ClassVar[str] = "tune-line"

    plan: Plan | None = None
    segment: Segment | None = None
    result: SegmentResult | None = None
    decisions: list[Decision] = field(default_factory=list)


def line_of(entry: TuneLine) -> str:
    return json.dumps(dump(entry), separators=(",", ":"), ensure_ascii=True, allow_nan=False) + "\n"


def read_lines(lines: Iterable[str]) -> tuple[Plan, list[SegmentResult]]:
    """The plan and the results; a last line that was cut short by a crash is left out."""
    rows = [line for line in lines if line.strip()]
    entries = []
    for number, row in enumerate(rows, 1):
        try:
            entries.append(decode(row, TuneLine, f"line {number}"))
        except RecordError as error:
            # Half a line is the mark of a kill in the middle of writing; a whole one that cannot be read is not.
            if number == len(rows) and error.key == "error.record-damaged":
                break
            raise
    plan = next((entry.plan for entry in entries if entry.plan is not None), None)
    if plan is None:
        raise RecordError("error.record-damaged", source="journal", detail="no plan")
    return plan, [entry.result for entry in entries if entry.result is not None]
