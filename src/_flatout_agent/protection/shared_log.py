"""What the processes of a trial tell each other about its files: an append-only log, and a mark that changes with it."""

from __future__ import annotations

import mmap
import os
import time
from typing import Iterator

from _flatout_agent.protection import system_calls as system
from _flatout_agent.wire import FILES_LOG

MARK_BYTES = 16


class SharedLog:
    """Asked before every file call, so a look costs no system call: the mark lies in shared memory."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FILES_LOG)
        mark = os.path.join(folder, "mark")
        descriptor = system.open(mark, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if system.fstat(descriptor).st_size < MARK_BYTES:
                system.write(descriptor, b"\0" * MARK_BYTES)
            self._mark = mmap.mmap(descriptor, MARK_BYTES)
        finally:
            system.close(descriptor)
        self._seen = b""
        self._read = 0  # bytes of the log

    def is_new(self) -> bool:
        return self._mark[:] != self._seen

    def news(self) -> Iterator[tuple[str, str]]:
        """(kind, path) of what was told since the last call."""
        self._seen = self._mark[:]
        try:
            descriptor = system.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            os.lseek(descriptor, self._read, os.SEEK_SET)
            told = b""
            while True:
                block = system.read(descriptor, 1 << 16)
                if not block:
                    break
                told += block
        finally:
            system.close(descriptor)
        whole = told[: told.rfind(b"\0") + 1]
        self._read += len(whole)
        for line in whole.split(b"\0")[:-1]:
            text = os.fsdecode(line)
            yield text[0], text[1:]

    def tell(self, kind: str, path: str) -> None:
        system.append(self._path, os.fsencode(kind + path) + b"\0")
        # Never the same twice, so that a mark that is written late still is a new one.
        self._mark[:] = (time.time_ns() << 24 | os.getpid() & 0xFFFFFF).to_bytes(MARK_BYTES, "little")
