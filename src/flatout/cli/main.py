"""`flatout`: finds the command, prints errors as one sentence, exits with the right code."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, TextIO

from flatout._version import __version__
from flatout.base.errors import FlatoutError
from flatout.cli.commandline import (
    Abort,
    ClickException,
    Language,
    LazyGroup,
    NotWrittenError,
    UnreadError,
    language_option,
    usage_sentence,
    version_option,
)

COMMANDS = {
    "doctor": "flatout.cli.doctor",
    "run": "flatout.cli.run",
    "tune": "flatout.cli.tune",
    "watch": "flatout.cli.watch",
    "facts": "flatout.cli.facts",
    "explain": "flatout.cli.explain",
}

INTERRUPTED = 130
NOT_WRITTEN = 74  # EX_IOERR of sysexits.h: what was asked for could not be printed

flatout = LazyGroup(
    name="flatout", modules=COMMANDS, params=[language_option(), version_option(__version__)], no_args_is_help=True
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _speak_utf8()
    language = Language()
    try:
        code = _code_of(arguments, language)
        sys.stdout.flush()
    except OSError as error:
        code = _trouble(error, language)
    _close(sys.stdout)
    _close(sys.stderr)
    sys.exit(code)


def _code_of(arguments: Sequence[str], language: Language) -> int:
    """Runs the command; an error is one sentence. What is left is an OSError: mostly of the output itself."""
    try:
        return flatout.main(args=list(arguments), prog_name="flatout", standalone_mode=False, obj=language) or 0
    except UnreadError:
        return NOT_WRITTEN  # and not a word: it has read enough, and knows it
    except NotWrittenError as error:
        return _trouble(error.problem, language)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except ClickException as error:
        wrong = usage_sentence(error)
        if wrong is not None:
            _say(language.words(wrong[0], **wrong[1]))
        else:
            with contextlib.suppress(OSError):
                error.show()
        return error.exit_code
    except FlatoutError as error:
        _say(language.words(error.key, **error.params))
        return error.exit_code
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED


def _trouble(error: OSError, language: Language) -> int:
    detail = error.strerror or str(error)
    if error.filename is not None:  # a file of ours or of the user's, and no road of its own for that
        _say(language.words("error.cannot-use", path=os.fsdecode(error.filename), detail=detail))
        return FlatoutError.exit_code
    if not isinstance(error, BrokenPipeError):
        _say(language.words("error.output", detail=detail))
    return NOT_WRITTEN


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"flatout: {sentence}", file=sys.stderr)


def _close(stream: TextIO) -> None:
    """Written to the end, or given up: what Python would say about it at exit helps nobody, and its code would hide ours."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _speak_utf8() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, _Closed())
        elif hasattr(stream, "reconfigure"):
            # Windows consoles and C locales would fail on the bars and on Chinese, and UTF-8 on names that are none.
            utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
            stream.reconfigure(errors="backslashreplace" if utf8 else "replace")


class _Closed(io.TextIOBase):
    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
