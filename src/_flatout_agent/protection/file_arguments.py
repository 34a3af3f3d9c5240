"""Functions that hand a file's name to a library of C or C++, which opens it by itself: they are given its place."""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any, NamedTuple

from _flatout_agent.core.after_import import after_import
from _flatout_agent.protection.shadow_files import NotCopiedError, ShadowFiles
from _flatout_agent.wire import GAVE_UP

READS, WRITES, KEEPS = "reads", "writes", "keeps"  # KEEPS: writes to what is there


class FileArgument(NamedTuple):
    module: str
    function: str  # with its class, if it is a method
    number: int
    name: str
    does: str
    mode: tuple[int, str, Any] = (99, "", None)  # number, name, and what stands for reading alone, which is the default


FUNCTIONS = (
    FileArgument("torch", "save", 1, "f", WRITES),
    FileArgument("torch", "load", 0, "f", READS),
    FileArgument("torch", "serialization.save", 1, "f", WRITES),
    FileArgument("torch", "serialization.load", 0, "f", READS),
    FileArgument("torch", "jit.save", 1, "f", WRITES),
    FileArgument("torch", "jit.load", 0, "f", READS),
    FileArgument("torch", "jit.ScriptModule.save", 1, "f", WRITES),
    FileArgument("torch", "jit.RecursiveScriptModule.save", 1, "f", WRITES),
    FileArgument("torch", "jit.ScriptFunction.save", 1, "filename", WRITES),
    FileArgument("torch", "UntypedStorage.from_file", 0, "filename", KEEPS, (1, "shared", False)),
    FileArgument("torch", "from_file", 0, "filename", KEEPS, (1, "shared", False)),
    FileArgument("torch", "autograd.profiler.profile.export_chrome_trace", 1, "path", WRITES),
    FileArgument("torch.export", "save", 1, "f", WRITES),
    FileArgument("torch.export", "load", 0, "f", READS),
    FileArgument("torch.distributed.rendezvous", "FileStore", 0, "file_name", KEEPS),
    FileArgument("torchvision.io.image", "write_file", 0, "filename", WRITES),
    FileArgument("torchvision.io.image", "read_file", 0, "path", READS),
    FileArgument("safetensors.torch", "save_file", 1, "filename", WRITES),
    FileArgument("safetensors.torch", "load_file", 0, "filename", READS),
    FileArgument("safetensors.numpy", "save_file", 1, "filename", WRITES),
    FileArgument("safetensors.numpy", "load_file", 0, "filename", READS),
    FileArgument("safetensors", "safe_open", 0, "filename", READS),
    FileArgument("safetensors.torch", "safe_open", 0, "filename", READS),
    FileArgument("tokenizers", "Tokenizer.from_file", 0, "path", READS),
    FileArgument("tokenizers", "Tokenizer.save", 1, "path", WRITES),
    FileArgument("pyarrow", "memory_map", 0, "path", KEEPS, (1, "mode", "r")),
    FileArgument("pyarrow", "create_memory_map", 0, "path", WRITES),
    FileArgument("pyarrow.parquet.core", "read_table", 0, "source", READS),
    FileArgument("pyarrow.parquet.core", "ParquetFile.__init__", 1, "source", READS),
    FileArgument("pyarrow.parquet.core", "ParquetWriter.__init__", 1, "where", WRITES),
    FileArgument("cv2", "imwrite", 0, "filename", WRITES),
    FileArgument("cv2", "imread", 0, "filename", READS),
    FileArgument("h5py._hl.files", "File.__init__", 1, "name", KEEPS, (2, "mode", "r")),
    FileArgument("_gdbm", "open", 0, "filename", KEEPS, (1, "flags", "r")),
    FileArgument("_dbm", "open", 0, "filename", KEEPS, (1, "flags", "r")),
    FileArgument("_sqlite3", "connect", 0, "database", KEEPS),
)
# Files of a database, beside it or in its place.
BESIDE = {"_sqlite3": ("-wal", "-journal", "-shm"), "_dbm": (".db", ".pag", ".dir")}


class FileArguments:
    def __init__(self, files: ShadowFiles, guard: Any) -> None:
        self._files = files
        self._guard = guard

    def place(self, name: Any, does: str) -> Any:
        """What to open in place of it."""
        if not isinstance(name, (str, bytes, os.PathLike)) or os.fspath(name) in ("", b"", ":memory:"):
            return name
        if isinstance(name, str) and name.startswith("file:"):  # an address of sqlite, which the guard judges
            return name
        if does == READS and self._files.is_untouched(name):
            return name
        path = self._files.path_of(name)
        if self._files.is_free(path):
            return name
        if does == READS:
            place = self._files.place(path)
            return name if place == path else place
        try:
            return self._files.for_writing(path, keep=does == KEEPS)
        except NotCopiedError:
            self._guard.refuse(path)
            raise

    def beside(self, module: str, name: Any, does: str) -> Any:
        """Files of a database that are not called as it is: those of one that was not closed, or all that there are."""
        if not isinstance(name, (str, bytes, os.PathLike)) or not os.fspath(name):
            return name
        path, found = self._files.path_of(name), False
        for ending in BESIDE[module]:
            if self._files.status(path + ending) is not None:
                found = self.place(path + ending, does) != path + ending or found
        return self._files.root + path if found and does == READS else name

    def opened(self, connection: Any) -> Any:
        """A database opens others by itself when it is told to attach one."""
        connection.set_authorizer(self._guard.attaches)
        return connection


def put_on(files: ShadowFiles, guard: Any) -> None:
    arguments = FileArguments(files, guard)
    for module in dict.fromkeys(one.module for one in FUNCTIONS):
        wanted = [one for one in FUNCTIONS if one.module == module]
        after_import(module, functools.partial(_exchange, arguments, wanted))


def _exchange(arguments: FileArguments, wanted: list[FileArgument], module: ModuleType, nanoseconds: int) -> None:
    """Fails closed, as the guard does: nobody else would see what these functions open."""
    try:
        for one in wanted:
            *owners, last = one.function.split(".")
            holder: Any = module
            for owner in owners:
                holder = getattr(holder, owner, None)
            held = vars(holder).get(last) if holder is not None else None
            if held is not None:
                _put(holder, last, _redirected(arguments, one, held), one.does)
    except Exception:
        os._exit(GAVE_UP)


def _put(holder: Any, name: str, call: Any, does: str) -> None:
    try:
        setattr(holder, name, call)
    except TypeError:  # a class of C's that takes nothing: where it only reads, it finds less than was written
        if does != READS:
            raise


def _redirected(arguments: FileArguments, one: FileArgument, held: Any) -> Any:
    plain = held.__func__ if isinstance(held, (staticmethod, classmethod)) else held

    def call(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        if len(given) > one.number:
            given[one.number] = _place(arguments, one, given[one.number], args, kwargs)
        elif one.name in kwargs:
            kwargs[one.name] = _place(arguments, one, kwargs[one.name], args, kwargs)
        returned = plain(*given, **kwargs)
        return arguments.opened(returned) if one.module == "_sqlite3" else returned

    try:
        functools.update_wrapper(call, plain)
    except (AttributeError, TypeError):
        pass
    return type(held)(call) if isinstance(held, (staticmethod, classmethod)) else call


def _place(arguments: FileArguments, one: FileArgument, name: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    number, mode, reading = one.mode
    given = args[number] if len(args) > number else kwargs.get(mode, reading)
    does = READS if mode and given == reading else one.does
    if one.module in BESIDE:
        beside = arguments.beside(one.module, name, does)
        if does == READS:
            return beside
    return arguments.place(name, does)
