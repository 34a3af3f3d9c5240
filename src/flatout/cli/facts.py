"""`flatout facts`: hardware and software of this machine, without importing torch."""

from __future__ import annotations

import os
import sys

from flatout.base import records
from flatout.cli.commandline import Context, echo, option, pass_context, words_of
from flatout.cli.commandline import command as make_command
from flatout.launch import interpreter
from flatout.machine import facts
from flatout.report import machine as report
from flatout.report.terminal import Table, show


@make_command(name="facts")
@option("--python", metavar="PATH", help="python")
@option("--json", "as_json", is_flag=True, help="json")
@pass_context
def command(context: Context, python: str | None, as_json: bool) -> None:
    path, _ = interpreter.choose(python, os.environ)
    machine = facts.machine(interpreter.describe(path))
    if as_json:
        echo(records.encode(machine).decode(), nl=False)
        return
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for label, value in report.lines(machine, words_of(context)):
        table.add_row(label, value)
    show(sys.stdout, table)
