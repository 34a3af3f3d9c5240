"""The summary of a run that has ended."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.launch.run import Finished
from flatout.machine.model import Interpreter, Machine
from flatout.measure.attribution import attribute
from flatout.measure.model import Note, Summary, TorchBuild


def summarise(finished: Finished, machine: Machine) -> Summary:
    told = attribute(finished.journals, finished.wall_s)
    killed = -finished.returncode if finished.returncode < 0 else None
    return Summary(
        run_id=finished.run_id,
        command=finished.command,
        started=finished.started,
        wall_s=finished.wall_s,
        exit_code=128 + killed if killed else finished.returncode,
        signal=killed,
        steps=told.steps,
        samples=told.samples,
        samples_per_s=told.samples_per_s,
        step_s=told.step_s,
        warmup_steps=told.warmup_steps,
        phases=told.phases,
        processes=told.processes,
        torch=told.torch,
        machine=_with_python(machine, told.python),
        notes=[*_ending_notes(finished.returncode), *told.notes, *_unused_gpu(told.torch, machine)],
        loaders=told.loaders,
    )


def _with_python(machine: Machine, version: str | Missing) -> Machine:
    if isinstance(version, str) and isinstance(machine.python.version, Missing):
        machine.python = Interpreter(path=machine.python.path, version=version)
    return machine


def _ending_notes(returncode: int) -> list[Note]:
    if returncode < 0:
        return [Note(code="ended-by-signal", params={"number": -returncode})]
    if returncode > 0:
        return [Note(code="ended-with-code", params={"code": returncode})]
    return []


def _unused_gpu(torch: TorchBuild, machine: Machine) -> list[Note]:
    """Why the training ran on the CPU, where that can be told: the first thing its owner would want to know."""
    if isinstance(torch.version, Missing):
        return []
    if isinstance(machine.gpus, Missing) or not machine.gpus:
        return [Note(code="no-gpu")]
    if not torch.cuda and not torch.hip:
        return [Note(code="build-without-cuda", params={"version": torch.version, "gpu": machine.gpus[0].name})]
    return []
