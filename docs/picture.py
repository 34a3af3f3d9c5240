"""Draws the README's picture from a run's own record: python docs/picture.py SUMMARY.json OUT.svg"""

from __future__ import annotations

import sys
from pathlib import Path

from flatout.base import records
from flatout.base.words import Words
from flatout.doctor import after_run
from flatout.measure.model import Summary
from flatout.report import run
from flatout.report.terminal import picture


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    summary = records.read(source, Summary)
    shown = " ".join(Path(word).name if "/" in word else word for word in summary.command[1:])
    table = run.render(summary, after_run.findings(summary), Words("en"), ".flatout/runs/…/summary.json")
    drawn = picture(table, f"$ flatout run {shown}")
    target.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
