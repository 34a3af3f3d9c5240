"""`flatout explain NAME`: the page of one fault or knob."""

from __future__ import annotations

import difflib

from flatout.base.errors import UsageError
from flatout.base.words import Words
from flatout.cli.commandline import Context, argument, echo, pass_context, words_of
from flatout.cli.commandline import command as make_command
from flatout.doctor import page, registry
from flatout.knobs import catalogue
from flatout.knobs.model import Knob
from flatout.knobs.values import UNTOUCHED, span


@make_command(name="explain")
@argument("name", required=False)
@pass_context
def command(context: Context, name: str | None) -> None:
    words = words_of(context)
    if name is None:
        echo(_listing(words))
        return
    rule = registry.find(name)
    if rule is not None:
        sheet = page.read(rule.code, words.language)
        echo(f"{rule.code} {rule.name}: {sheet.title}\n\n{sheet.body}")
        return
    knob = catalogue.find(name)
    if knob is None:
        known = [*(rule.code for rule in registry.all_rules()), *(rule.name for rule in registry.all_rules())]
        near = difflib.get_close_matches(name, [*known, *(knob.name for knob in catalogue.KNOBS)], n=1)
        raise UsageError("error.unknown-page-near" if near else "error.unknown-page", name=name, near=near[0] if near else "")
    echo(_page(knob, words))


def _listing(words: Words) -> str:
    faults = [f"  {rule.code}  {rule.name:26} {page.read(rule.code, words.language).title}" for rule in registry.all_rules()]
    knobs = [f"  {knob.name:20} {words(f'knob.{knob.name}.what')}" for knob in catalogue.KNOBS]
    return "\n".join([words("explain.faults"), *faults, "", words("explain.knobs"), *knobs])


def _page(knob: Knob, words: Words) -> str:
    cures = f"{words('knob-page.cures')} {', '.join(words(f'bound.{bound}') for bound in knob.cures)}"
    return "\n".join(
        (
            f"{knob.name}: {words(f'knob.{knob.name}.what')}",
            "",
            words(f"knob.{knob.name}.why"),
            "",
            f"{words('knob-page.traps')} {words(f'knob.{knob.name}.traps')}",
            "",
            f"{words('knob-page.values')} {', '.join(knob.domain)} ({words('knob-page.default')} {knob.default})",
            f"{words('knob-page.numerics')} {knob.numerics} ({words(f'numerics.{knob.numerics}')})",
            f"{words('knob-page.switch')} {knob.switch} ({words(f'switch.{knob.switch}')})",
            *([cures] if knob.cures else []),
            *([_trial(knob, words)] if knob.name != "batch_size" else []),
        )
    )


def _trial(knob: Knob, words: Words) -> str:
    """The command that turns it, with a value that does something."""
    limits = span(knob)
    value = str(min(max(limits[0], 4), limits[1])) if limits else next(v for v in knob.domain if v not in UNTOUCHED)
    return f"{words('knob-page.try')} flatout run --knob {knob.name}={value} train.py"
