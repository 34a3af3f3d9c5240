"""`flatout doctor`: five layers, one root cause, the exact repair."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from flatout.base import records
from flatout.base.errors import UsageError
from flatout.base.records import Missing
from flatout.cli.commandline import Context, argument, echo, option, pass_context, words_of
from flatout.cli.commandline import command as make_command
from flatout.doctor import registry, root_cause
from flatout.doctor.paste.reader import read as read_paste
from flatout.launch import interpreter
from flatout.machine.gather import gather
from flatout.machine.machine_facts import Facts
from flatout.machine.redact import redact
from flatout.report import doctor as report
from flatout.report.terminal import show

MOST_BYTES = 64 * 2**20  # of a paste that is read at all


@make_command(name="doctor")
@option("--python", metavar="PATH", help="python")
@option("--json", "as_json", is_flag=True, help="json")
@option("--save", metavar="FILE", help="doctor-save")
@option("--from", "source", metavar="FILE", help="doctor-from")
@option("--verbose", "-v", is_flag=True, help="verbose")
@argument("script", required=False, metavar="[SCRIPT or CONFIG]")
@pass_context
def command(
    context: Context, python: str | None, as_json: bool, save: str | None, source: str | None, verbose: bool, script: str | None
) -> None:
    words = words_of(context)
    facts = _facts(python, source, script)
    if save:
        try:
            records.write(Path(save), redact(facts))
        except OSError as error:
            raise UsageError("error.cannot-write", path=save, detail=error.strerror or str(error)) from error
    found = root_cause.judge(facts, registry.all_rules())
    if as_json:
        echo(json.dumps(report.to_json(found), indent=2, ensure_ascii=False))
    else:
        show(sys.stdout, report.render(found, facts, words, verbose))
    if save:
        echo(words("doctor.saved", path=save), err=True)
    sys.exit(0 if found.healthy else 1)


def _facts(python: str | None, source: str | None, script: str | None) -> Facts:
    facts = _given(source) if source else _own(python)
    if script is not None:
        if not os.path.exists(script):
            raise UsageError("error.script-not-found", script=script)
        from flatout.machine import script_look  # with its YAML reader, only for those who hand a file over

        look = script_look.look(Path(script))
        if isinstance(look, Missing):
            raise UsageError(f"error.script-{look.reason}", script=script)
        facts.application.script = look
    return facts


def _own(python: str | None) -> Facts:
    path, _ = interpreter.choose(python, os.environ)
    return gather(path)


def _given(source: str) -> Facts:
    try:
        data = sys.stdin.buffer.read(MOST_BYTES) if source == "-" else _read(Path(source))
    except OSError as error:
        raise UsageError("error.cannot-read", path=source, detail=error.strerror or str(error)) from error
    if data.lstrip()[:1] == b"{" and b'"kind": "facts"' in data[:200]:
        return records.decode(data, Facts, source)
    return read_paste(data.decode("utf-8", "replace"))


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES)
