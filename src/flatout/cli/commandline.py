"""The only file that imports click: lazy commands, help in the user's language, examples at the end of every help text."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
from click import UNPROCESSED, Abort, ClickException, Context, pass_context

from flatout.base.errors import UsageError
from flatout.base.words import LANGUAGES, Words, choose_language

__all__ = [
    "UNPROCESSED",
    "Abort",
    "ClickException",
    "Context",
    "Language",
    "LazyGroup",
    "NotWrittenError",
    "UnreadError",
    "argument",
    "command",
    "echo",
    "language_option",
    "option",
    "pass_context",
    "usage_sentence",
    "version_option",
    "words_of",
    "words_typed",
    "write_record",
]

WORDS = "flatout.words"
LANGUAGE = "lang"

argument = click.argument
echo = click.echo


def options_of(context: Context) -> list[str]:
    """As they are written: for the nearest to one that does not exist."""
    return [name for parameter in context.command.params for name in parameter.opts if name.startswith("-")]


def usage_sentence(error: ClickException) -> tuple[str, dict[str, str]] | None:
    """Key and parameters of the sentence for a command line that is wrong; None where click shows the help instead."""
    context = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return None
    said, where = error.format_message().rstrip("."), context.command_path if context is not None else "flatout"
    if isinstance(error, click.NoSuchOption) and context is not None:
        near = difflib.get_close_matches(error.option_name, options_of(context), n=1)
        key = "error.unknown-option-near" if near else "error.no-option"
        return key, {"option": error.option_name, "near": near[0] if near else "", "command": where}
    return "error.usage", {"said": said, "command": where}


def words_of(context: Context) -> Words:
    """The catalogue of the language this invocation speaks."""
    return _language_of(context).words


class Language:
    """Which one this invocation speaks: `--lang` says it, before the command or after it."""

    def __init__(self) -> None:
        self.words = Words(choose_language(None))

    def choose(self, asked: str) -> None:
        self.words = Words(choose_language(asked))


def _language_of(context: Context) -> Language:
    root = context.find_root()
    if not isinstance(root.obj, Language):
        root.obj = Language()
    return root.obj


def words_typed(context: Context) -> list[str]:
    """What stood after the command's name, as it was typed."""
    return list(context.meta[WORDS])


class _Translated(click.Command):
    """Help from the catalogue: `command.<name>.help`, options by key, and `command.<name>.examples` last."""

    @property
    def key(self) -> str:
        return f"command.{self.name}"

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = list(args)
        try:
            return super().parse_args(ctx, _with_values_left_out(self, ctx, args))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # an option without its value does not say of which command
            raise

    def format_help_text(self, ctx: Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(words_of(ctx)(f"{self.key}.help"))

    def format_epilog(self, ctx: Context, formatter: click.HelpFormatter) -> None:
        words = words_of(ctx)
        formatter.write_paragraph()
        formatter.write(f"{words('command.examples')}\n")
        for line in words(f"{self.key}.examples").strip().splitlines():
            formatter.write(f"  {line}\n")


class _Option(click.Option):
    """Its help text is a key of the catalogue.

    With `takes` the value may be left out: the next word is taken only where `takes` says that it belongs to the option.
    """

    def __init__(
        self, *names: Any, takes: Callable[[str], bool] | None = None, otherwise: str | None = None, **settings: Any
    ) -> None:
        super().__init__(*names, **settings)
        self.takes = takes
        self.otherwise = otherwise

    def get_help_record(self, ctx: Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return record and (record[0], words_of(ctx)(f"option.{self.help}"))


def _with_values_left_out(command: click.Command, context: Context, words: list[str]) -> list[str]:
    """click would take whatever follows `--compile` for its value, the script too. Only our own options are looked at."""
    options = {
        name: part
        for part in command.get_params(context)
        if isinstance(part, click.Option)
        for name in [*part.opts, *part.secondary_opts]
    }
    words, position = list(words), 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        part = options.get(word.partition("=")[0])
        if part is None:
            break  # the script's own business begins here
        position += 1
        following = words[position] if position < len(words) else None
        if part.name == LANGUAGE:  # before all else, so that `--help --lang zh` speaks Chinese, too
            asked = word.partition("=")[2] or following
            if asked in LANGUAGES:
                _language_of(context).choose(str(asked))
        if part.is_flag or part.count or "=" in word:
            continue
        if isinstance(part, _Option) and part.takes is not None and (following is None or not part.takes(following)):
            words[position - 1] = f"{word}={part.otherwise}"
            continue
        position += 1
    return words


def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    return click.option(*names, cls=_Option, **settings)


def language_option() -> click.Option:
    def choose(context: Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            _language_of(context).choose(value)
        return value

    # Eager, so that `--lang zh --help` speaks Chinese.
    return _Option(["--lang"], type=click.Choice(LANGUAGES), callback=choose, is_eager=True, expose_value=False, help="lang")


def version_option(version: str) -> click.Option:
    def show(context: Context, parameter: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            echo(f"flatout {version}")
            context.exit()

    return _Option(["--version"], is_flag=True, callback=show, is_eager=True, expose_value=False, help="version")


def command(**settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    def make(function: Callable[..., Any]) -> click.Command:
        made = click.command(cls=_Translated, **settings)(function)
        made.params.insert(0, language_option())
        return made

    return make


class UnreadError(Exception):
    """Whoever read the output has closed it: click would leave with the code of a fault found."""


class NotWrittenError(Exception):
    """The output that was asked for cannot be written: no file of ours, and no disk that a search needs."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(problem)
        self.problem = problem


def write_record(text: str) -> None:
    """Of `--json`, at the end of a command that writes files as well."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        raise NotWrittenError(error) from error


@contextlib.contextmanager
def _read_to_the_end() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise UnreadError from error


class LazyGroup(_Translated, click.Group):
    """Loads a command's module when it is called, so that `flatout --help` costs click alone."""

    def make_context(self, *args: Any, **settings: Any) -> Context:
        with _read_to_the_end():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Context) -> Any:
        with _read_to_the_end():
            return super().invoke(ctx)

    def __init__(self, *args: Any, modules: dict[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._modules = modules

    @property
    def key(self) -> str:
        return "command.flatout"

    def list_commands(self, ctx: Context) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: Context, cmd_name: str) -> click.Command | None:
        module = self._modules.get(cmd_name)
        if module is None:
            near = difflib.get_close_matches(cmd_name, self._modules, n=1)
            key = "error.unknown-command-near" if near else "error.unknown-command"
            raise UsageError(key, name=cmd_name, near=near[0] if near else "")
        found = importlib.import_module(module).command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: Context, formatter: click.HelpFormatter) -> None:
        words = words_of(ctx)
        with formatter.section(words("command.commands")):
            formatter.write_dl([(name, words(f"command.{name}.short")) for name in self.list_commands(ctx)])
