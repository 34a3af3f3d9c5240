"""`flatout explain NAME`: the page of one knob."""

from __future__ import annotations

import difflib

from flatout.base.errors import UsageError
from flatout.base.words import Words
from flatout.cli.commandline import Context, argument, echo, pass_context, words_of
from flatout.cli.commandline import command as make_command
from flatout.knobs import catalogue
from flatout.knobs.model import Knob


@make_command(name="explain")
@argument("name", required=False)
@pass_context
def command(context: Context, name: str | None) -> None:
    words = words_of(context)
    if name is None:
        for knob in catalogue.KNOBS:
            echo(f"{knob.name:20} {words(f'knob.{knob.name}.what')}")
        return
    found = catalogue.find(name)
    if found is None:
        near = difflib.get_close_matches(name, [knob.name for knob in catalogue.KNOBS], n=1)
        raise UsageError("error.unknown-page-near" if near else "error.unknown-page", name=name, near=near[0] if near else "")
    echo(_page(found, words))


def _page(knob: Knob, words: Words) -> str:
    return "\n".join(
        (
            f"{knob.name}: {words(f'knob.{knob.name}.what')}",
            "",
            words(f"knob.{knob.name}.why"),
            "",
            f"{words('knob-page.values')} {', '.join(knob.domain)} ({words('knob-page.default')} {knob.default})",
            f"{words('knob-page.numerics')} {knob.numerics} ({words(f'numerics.{knob.numerics}')})",
            f"{words('knob-page.switch')} {knob.switch} ({words(f'switch.{knob.switch}')})",
            f"{words('knob-page.cures')} {', '.join(words(f'bound.{bound}') for bound in knob.cures)}",
        )
    )
