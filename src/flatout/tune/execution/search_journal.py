"""The journal of a search as lines of JSON: the plan, then one line after each segment, then the end.

Whoever writes a line puts it on the disk before the next segment begins. A search is a function of its plan and the results
so far, so these lines are all that `--resume` needs; decisions stand in them for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from flatout.base.errors import RecordError
from flatout.base.records import Record, Struct, decode, dump, field
from flatout.tune.search.questions_and_answers import Decision, Plan, Segment, SegmentResult

BLANK = b" \t\r\n\0"  # a power cut leaves zeros


class About(Struct, frozen=True, kw_only=True):
    """Whose search it is."""

    command: list[str]  # without the interpreter
    script: str = ""  # digest of the file, where there is one
    version: str = ""  # of flatout


class TuneLine(Record):
    """One line: a plan, or a segment with its result and the decisions that followed."""

    KIND: ClassVar[str] = "tune-line"

    about: About | None = None  # beside the plan; journals of 0.1 have none
    plan: Plan | None = None
    segment: Segment | None = None
    result: SegmentResult | None = None
    decisions: list[Decision] = field(default_factory=list)


class Told(NamedTuple):
    """What a journal says, and how much of it is whole."""

    about: About | None
    plan: Plan
    segments: list[Segment | None]
    results: list[SegmentResult]
    whole: int  # bytes
    ended: bool  # with the end of a line


def line_of(entry: TuneLine) -> str:
    return json.dumps(dump(entry), separators=(",", ":"), ensure_ascii=True, allow_nan=False) + "\n"


def read_lines(lines: Iterable[str]) -> tuple[Plan, list[SegmentResult]]:
    """The plan and the results; a last line that was cut short by a crash is left out."""
    told = read("".join(line if line.endswith("\n") else f"{line}\n" for line in lines).encode("ascii", "replace"))
    return told.plan, told.results


def read(data: bytes) -> Told:
    """Half a line at the end is the mark of a kill in the middle of writing; one that cannot be read elsewhere is not."""
    rows = data.splitlines(keepends=True)
    entries: list[TuneLine] = []
    place = whole = 0
    for number, row in enumerate(rows, 1):
        place += len(row)
        if row.strip(BLANK):
            try:
                entries.append(decode(row, TuneLine, f"line {number}"))
            except RecordError as error:
                if error.key == "error.record-damaged" and not any(later.strip(BLANK) for later in rows[number:]):
                    break
                raise
            whole = place
    first = next((entry for entry in entries if entry.plan is not None), None)
    if first is None or first.plan is None:
        raise RecordError("error.record-damaged", source="journal", detail="no plan")
    after = [entry for entry in entries if entry.result is not None]
    results = [entry.result for entry in after if entry.result is not None]
    return Told(first.about, first.plan, [entry.segment for entry in after], results, whole, data[:whole].endswith(b"\n"))
