"""`flatout`: finds the command, prints errors as one sentence, leaves with the right code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from flatout._version import __version__
from flatout.base.errors import FlatoutError
from flatout.base.words import Words, choose_language
from flatout.cli.commandline import Abort, ClickException, LazyGroup, language_option, version_option

COMMANDS = {
    "doctor": "flatout.cli.doctor",
    "run": "flatout.cli.run",
    "tune": "flatout.cli.tune",
    "facts": "flatout.cli.facts",
    "explain": "flatout.cli.explain",
}

INTERRUPTED = 130

flatout = LazyGroup(
    name="flatout", modules=COMMANDS, params=[language_option(), version_option(__version__)], no_args_is_help=True
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _speak_utf8()
    try:
        sys.exit(flatout.main(args=arguments, prog_name="flatout", standalone_mode=False) or 0)
    except ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except FlatoutError as error:
        words = Words(choose_language(_asked_language(arguments)))
        print(f"flatout: {words(error.key, **error.params)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except (Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)


def _speak_utf8() -> None:
    # Windows consoles and C locales would fail on the bars and on Chinese.
    for stream in (sys.stdout, sys.stderr):
        if (getattr(stream, "encoding", None) or "").lower().replace("-", "") != "utf8" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _asked_language(arguments: Sequence[str]) -> str | None:
    for position, word in enumerate(arguments):
        if word.startswith("--lang="):
            return word.removeprefix("--lang=")
        if word == "--lang" and position + 1 < len(arguments):
            return arguments[position + 1]
        if not word.startswith("-"):
            break
    return None
