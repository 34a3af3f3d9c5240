"""Chooses the protection of trials and prints what it does and does not block, before anything is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from flatout.base.words import Words
from flatout.launch import protection
from flatout.launch.compiled import CACHES
from flatout.launch.protection import Kind, Protection, Trying, Unprotected
from flatout.launch.written import folders_of

MOST_NAMED = 20


def protection_for(line: Sequence[str], asked: Mapping[str, Any]) -> AbstractContextManager[Protection]:
    if asked["no_sandbox"]:
        return Unprotected()
    folders, network = folders_of(line[1:], Path.cwd()), bool(asked["allow_network"])
    return protection.choose(Trying(line=list(line), folders=folders, environ=dict(os.environ), allow_network=network))


def sentences(held: Protection, words: Words, allow_network: bool) -> list[str]:
    """How trials are held here; and what is not."""
    if held.kind == Kind.NONE:
        return []
    network = words("tune-held.network" if allow_network else "tune-held.no-network")
    gaps = [words(f"tune-gap.{code}") for code in held.gaps]
    kind = "guard-windows" if held.kind == Kind.GUARD and sys.platform == "win32" else held.kind
    return [words(f"tune-held.{kind}"), network, *gaps, *_caches(held, words), *_compared(held, words)]


def _caches(held: Protection, words: Words) -> list[str]:
    """Where compilers keep what they built, if that is not where the user wants it."""
    pairs = [(name, os.environ.get(name), given) for name, given in held.environ.items() if name in CACHES]
    others = [(name, mine, given) for name, mine, given in pairs if mine and os.path.abspath(mine) != given]
    return [words("tune-held.cache", variable=name, folder=mine, instead=given) for name, mine, given in others]


def _compared(held: Protection, words: Words) -> list[str]:
    if held.watch is None:
        return []
    told = [words("tune-held.compared", folders=", ".join(held.watch.tops))]
    return [*told, words("tune-held.left-out", folder=held.watch.left_out)] if held.watch.left_out else told


def new_files(made: Sequence[Path], words: Words) -> list[str]:
    """What appeared past the guard. It ends with exit status 1, whatever the search found."""
    more = [words("tune-watched.more", count=len(made) - MOST_NAMED)] if len(made) > MOST_NAMED else []
    return [words("tune-watched.made", paths=", ".join([*map(str, made[:MOST_NAMED]), *more]))] if made else []


def afterwards(held: Protection, words: Words) -> list[str]:
    """What trials did that they were allowed to."""
    addresses = held.addresses()
    return [words("tune-held.addresses", addresses=", ".join(addresses))] if addresses else []
