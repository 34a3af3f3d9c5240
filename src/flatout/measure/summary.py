"""The summary of a run that has ended."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.base.secrets import hide
from flatout.knobs.model import KnobUse
from flatout.launch.run import Finished
from flatout.machine import cards
from flatout.machine.deep_look import DeepLook
from flatout.machine.machine_facts import Interpreter, Machine
from flatout.machine.run_look import LoaderUse, OutOfMemory
from flatout.measure import knob_use
from flatout.measure.bound import with_roofline
from flatout.measure.ceilings import ceilings, undisturbed
from flatout.measure.delivered import Delivery, delivery
from flatout.measure.fitting import fitting_batch, next_command
from flatout.measure.gpu_state import compare
from flatout.measure.model import Note, Summary, TorchBuild
from flatout.measure.parts import parts_of
from flatout.measure.process_journals import Attribution, attribute


def summarise(finished: Finished, machine: Machine) -> Summary:
    told = attribute(finished.journals, finished.wall_s)
    killed = -finished.returncode if finished.returncode < 0 else None
    deep = _deep(told, machine) if finished.deep else None
    bottleneck = told.bottleneck if deep is None else with_roofline(told.bottleneck, deep.ceilings)
    parts = parts_of(told.phases, told.script_outside_s)
    knobs = knob_use.uses(finished.settings, finished.journals)
    return Summary(
        run_id=finished.run_id,
        command=hide(finished.command),
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
        parts=parts,
        turns=told.turns,
        batches=told.batches,
        script_outside_s=told.script_outside_s,
        script_lines=told.script_lines,
        put_on_s=told.put_on_s,
        processes=told.processes,
        torch=told.torch,
        machine=_with_python(machine, told.python),
        notes=[*_ending_notes(finished.returncode), *told.notes, *(_unused_gpu(told.torch, machine) if told.steps else [])],
        loaders=told.loaders,
        bound_by=bottleneck.by,
        bound_evidence=bottleneck.evidence,
        tokens_per_s=told.tokens_per_s,
        device=told.device,
        losses=told.losses,
        gpus=compare(finished.gpus_before, machine.gpus, finished.gpus_during, told.device),
        host=finished.host,
        out_of_memory=_with_way_out(told.out_of_memory, hide(finished.command), told.loaders),
        device_mix=told.device_mix,
        knobs=knobs,
        promise=_promise(finished, told, parts, knobs),
        deep=deep,
    )


def _promise(finished: Finished, told: Attribution, parts: dict[str, float], knobs: list[KnobUse]) -> Delivery | None:
    """None where no profile was put on."""
    settings = finished.settings
    if not settings.applied or settings.profile is None or finished.deep:
        return None
    ended = (finished.returncode, [note.code for note in told.notes])
    return delivery(settings.profile.promise, parts, (told.steps, told.batches), ended, knobs)


def _deep(told: Attribution, machine: Machine) -> DeepLook:
    deep = told.deep
    if not told.steps:
        deep.refused.setdefault("none", "no-steps")
    card = cards.find(deep.device) if isinstance(deep.device, str) else None
    step_s = undisturbed(told.step_s, told.steps - told.warmup_steps, deep.cost_s)
    deep.ceilings = ceilings(deep, machine.processor.usable, told.samples_per_step, step_s, card)
    return deep


def _with_way_out(told: OutOfMemory | None, command: list[str], loaders: list[LoaderUse]) -> OutOfMemory | None:
    if told is None:
        return None
    sizes = [use.batch_size for use in loaders if isinstance(use.batch_size, int)]
    if isinstance(told.batch, Missing) and len(set(sizes)) == 1:
        told.batch = sizes[0]
    fits = fitting_batch(told)
    told.fits_batch_estimated = fits
    if isinstance(fits, int) and fits and isinstance(told.batch, int):
        told.try_next = next_command(command, told.batch, fits)
    return told


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
