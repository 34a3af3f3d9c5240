"""A child process for trials: its own process group, its output in a file, killed as a whole."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from _flatout_agent import wire
from flatout.base import records
from flatout.base.secret_forms import longest, scrubbed
from flatout.base.secrets import secrets_in
from flatout.launch import environment, journals, reaper
from flatout.launch.error_texts import errors_scrubbed
from flatout.launch.tied import tied
from flatout.launch.trial_terminal import TrialInput
from flatout.machine import host

# Nothing of a trial is sent to trackers, and no progress bar is drawn.
QUIET = {
    "WANDB_MODE": "disabled",
    "MLFLOW_TRACKING_URI": "",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "SWANLAB_MODE": "disabled",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
TAIL = 4000
LARGEST_CHARACTER = 4  # bytes, in UTF-8

# torch's on a device and on the host, Python's, C++'s.
OUT_OF_MEMORY = ("OutOfMemoryError", "DefaultCPUAllocator: can't allocate memory", "MemoryError", "std::bad_alloc")


class TrialChild:
    """One started script, asked for segments by files in `folder`."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], folder: Path, **job: Any) -> None:
        """`job`: what is wanted of the agent, as `wire.new_job` takes it."""
        self.folder = folder
        self._secrets = secrets_in(command, environ)
        folder.mkdir(parents=True)
        started = time.time()
        path = folder / "job.json"
        wanted = wire.new_job(str(folder), started, **job)
        records.write_bytes(path, wire.job_text(wanted))
        self._output: BinaryIO = (folder / "output.txt").open("wb")
        self._input = TrialInput()
        self.process = subprocess.Popen(
            tied(command),
            env={**environment.of_trial(environ, path, any(wanted.get(name) for name in wire.HOLDING)), **QUIET},
            stdin=self._input.descriptor,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._input.started()

    def ask(self, segment: Mapping[str, Any]) -> None:
        records.write_bytes(self.folder / wire.QUESTION, records.encode(dict(segment)))

    def answer(self, number: int) -> dict[str, Any] | None:
        return self._read(wire.answer_name(number))

    def ready(self) -> dict[str, Any] | None:
        return self._read(wire.READY)

    def went_on(self) -> bool:
        """Whether its epochs were made longer than it expects."""
        return (self.folder / wire.WENT_ON).exists()

    def losses(self) -> dict[str, Any] | None:
        return self._read(wire.LOSSES)

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        return errors_scrubbed(json.loads(path.read_bytes()), self._secrets) if path.exists() else None

    def busy_s(self) -> float:
        """What works does not hang."""
        return host.busy_s(self.process.pid)

    def moved(self) -> int:
        """What gets on reads, writes, or takes memory."""
        return host.moved(self.process.pid)

    def said(self) -> str:
        """The end of what it printed."""
        return self.printed(TAIL)

    def printed(self, most: int) -> str:
        """Without the keys and passwords that it was started with: this is kept, and shown."""
        margin = longest(self._secrets)
        with (self.folder / "output.txt").open("rb") as file:
            began = max(0, file.seek(0, os.SEEK_END) - LARGEST_CHARACTER * (most + margin))
            file.seek(began)
            text = scrubbed(file.read().decode("utf-8", "replace"), self._secrets)
        # A file that is begun in its midst may begin with half a secret.
        return (text[margin:] if began else text)[-most:]

    def ran_out_of_memory(self) -> bool:
        told = any(line.get("kind") == "oom" for line in self._journals())
        return told or any(words in self.said() for words in OUT_OF_MEMORY)

    def steps(self) -> int | None:
        """Optimizer steps that it told of; None where no process of it came to import torch."""
        lines = self._journals()
        return max((int(line.get("steps", 0)) for line in lines if line.get("kind") == "window"), default=0) if lines else None

    def journals(self) -> list[list[dict[str, Any]]]:
        """With every window: of a run that takes minutes at most."""
        return [[errors_scrubbed(line, self._secrets) for line in lines] for lines in journals.read_whole(self.folder)]

    def _journals(self) -> list[dict[str, Any]]:
        return [line for lines in journals.read(self.folder) for line in lines]

    def died(self, limit_s: float) -> bool:
        """Waits for its end. What a crash leaves behind looks like a result, and is none."""
        try:
            return self.process.wait(limit_s) != 0
        except subprocess.TimeoutExpired:
            return False

    def kill(self) -> None:
        """With all that it started: its group, those that left the group, and those that nobody is the parent of any more."""
        below = host.family(self.process.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        host.kill(below)
        reaper.end_marked(os.fsencode(mark_of(self.folder)))
        self.process.wait()
        self._input.close()
        self._output.close()


def mark_of(folder: Path) -> str:
    """What stands in the environment of every process of a trial with its job in this folder, or below it."""
    return f"{wire.JOB_VARIABLE}={folder}{os.sep}"
