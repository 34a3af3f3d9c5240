"""From the journals of a run's processes to one summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from _flatout_agent.wire import FIRST_PHASES, PHASES, TRAINING_PHASES, WARM_STEPS
from flatout.base.records import Missing, Struct, field, replace
from flatout.machine.deep_look import DeepLook
from flatout.machine.run_look import DeviceLook, DeviceMix, LoaderUse, Losses, OutOfMemory, ScriptLine
from flatout.measure import bound, readings
from flatout.measure import deep as deep_readings
from flatout.measure.bound import Bottleneck
from flatout.measure.model import Note, TorchBuild

Line = dict[str, Any]

NANO = 1e-9


class ProcessStory(Struct, kw_only=True):
    """One process's journal, read: seconds instead of nanoseconds, names instead of positions."""

    pid: int
    rank: int
    steps: int
    clocked_by_backward: bool
    samples: int
    unsized_batches: int
    batches: int  # of several loaders read in step: once
    foreign_batches: int
    phases: dict[str, float]
    script_outside_s: float  # of the script's own code: what does not come with every step
    script_lines: list[ScriptLine]
    put_on_s: float  # of flatout's own work: putting settings on
    turns: int
    rate: float | None  # samples per second after the warm-up
    step_s: float | None
    warmup_steps: int
    steady: dict[str, float]  # the phases after the warm-up
    tokens_per_s: float | None
    device: DeviceLook
    losses: Losses
    out_of_memory: OutOfMemory | None
    device_mix: DeviceMix | None
    finished: bool  # it reached its exit handlers
    torch: TorchBuild
    passed_through: bool
    loaders: list[LoaderUse]
    faults: list[str]
    deep: list[Line] = field(default_factory=list)  # its lines of the deep look


class Attribution(Struct, kw_only=True):
    """The part of a summary that the journals give."""

    steps: int
    samples: int | Missing
    samples_per_s: float | Missing
    step_s: float | Missing
    warmup_steps: int
    phases: dict[str, float]
    processes: int
    torch: TorchBuild
    python: str | Missing
    loaders: list[LoaderUse]
    notes: list[Note]
    bottleneck: Bottleneck = field(default_factory=Bottleneck)
    tokens_per_s: float | Missing = field(default_factory=lambda: Missing("no-steps"))
    device: DeviceLook = field(default_factory=DeviceLook)
    losses: Losses = field(default_factory=Losses)
    out_of_memory: OutOfMemory | None = None
    device_mix: DeviceMix | None = None
    deep: DeepLook = field(default_factory=DeepLook)
    samples_per_step: float | Missing = field(default_factory=lambda: Missing("no-batches"))
    script_outside_s: float = 0.0
    script_lines: list[ScriptLine] = field(default_factory=list)
    put_on_s: float = 0.0
    turns: int = 0
    batches: int = 0  # of the leading process


def attribute(journals: list[list[Line]], wall_s: float) -> Attribution:
    """Where the wall time of a run went, told by the process that trained (the slowest rank's peer with most steps)."""
    stories = [story for lines in journals if (story := read_story(lines)) is not None]
    trained = [story for story in stories if story.steps]
    lead = max(trained or stories, key=lambda s: (s.steps, -s.rank), default=None)
    if lead is None:
        return _nothing_seen(wall_s)
    samples = sum(story.samples for story in trained)
    rates = [story.rate for story in trained if story.rate]
    tokens = [story.tokens_per_s for story in trained if story.tokens_per_s]
    return Attribution(
        steps=lead.steps,
        samples=samples if samples else Missing("no-batches"),
        samples_per_s=sum(rates) if samples and rates else Missing("no-batches"),
        step_s=lead.step_s if lead.step_s is not None else Missing("no-steps"),
        warmup_steps=lead.warmup_steps,
        phases=close_account(lead.phases, wall_s, lead.finished, in_the_parent(stories)),
        processes=len(trained),
        torch=lead.torch,
        python=_python_of(journals),
        loaders=sorted(lead.loaders, key=lambda use: -use.wait_s),
        notes=_notes(lead, stories),
        bottleneck=bound.judge(lead.steady, lead.device, lead.steps),
        tokens_per_s=sum(tokens) if tokens else Missing("not-reported"),
        device=_with_siblings(lead.device, trained),
        losses=lead.losses,
        # Any process may have stopped the run: the rank that ran out of memory is not always the one that leads.
        out_of_memory=next((story.out_of_memory for story in stories if story.out_of_memory), None),
        device_mix=next((story.device_mix for story in stories if story.device_mix), None),
        deep=deep_readings.read(lead.deep, [line for lines in journals for line in deep_readings.lines_of(lines)]),
        samples_per_step=samples / lead.steps if samples and lead.steps else Missing("no-batches"),
        script_outside_s=lead.script_outside_s,
        script_lines=lead.script_lines,
        put_on_s=lead.put_on_s,
        turns=lead.turns,
        batches=lead.batches,
    )


def _with_siblings(device: DeviceLook, trained: list[ProcessStory]) -> DeviceLook:
    """Cores that the script's other training processes keep busy are the script's own, too."""
    cores = [story.device.cores for story in trained if story.device.cores is not None]
    if device.cores is None or len(cores) < 2:
        return device
    return replace(device, cores=replace(device.cores, own_s=sum(one.own_s for one in cores)))


def read_story(lines: list[Line]) -> ProcessStory | None:
    head = next((line for line in lines if line.get("kind") == "process"), None)
    last = next((line for line in reversed(lines) if line.get("kind") == "window" and "phases" in line), None)
    if head is None:
        return None
    last = last or {"phases": [0] * len(PHASES)}
    torch = head.get("torch") or {}
    sampled = last.get("copy_sampled") or [0, 0]
    phases = split_copies(_named(last["phases"]), sampled)
    stepped = last.get("steps", 0)
    # No torch optimizer stepped, or a compiled one, which no hook sees: the backward passes are the clock.
    steps = stepped or last.get("backwards", 0)
    rate, step_s, warmup = _steady(steps, last)
    deep = deep_readings.lines_of(lines)
    steady = _without_warm_up(last, sampled) if warmup else split_copies(_in_the_loop(last), sampled)
    return ProcessStory(
        pid=int(head["pid"]),
        rank=int(head.get("rank") or 0),
        steps=steps,
        clocked_by_backward=bool(steps and not stepped),
        samples=last.get("samples", 0),
        unsized_batches=last.get("unsized_batches", 0),
        batches=last.get("batches", 0) - last.get("beside", 0),
        foreign_batches=last.get("foreign_batches", 0),
        phases=phases,
        script_outside_s=last.get("script_outside", 0) * NANO,
        script_lines=readings.script_lines(last, phases["script"]),
        put_on_s=last.get("put_on", 0) * NANO,
        turns=last.get("turns", 0),
        rate=rate,
        step_s=step_s,
        warmup_steps=warmup,
        steady=steady,
        tokens_per_s=_tokens_per_s(last),
        device=readings.device_of({**last, **deep_readings.for_device(deep)}),
        losses=readings.losses_of(last),
        out_of_memory=readings.out_of_memory(lines),
        device_mix=readings.device_mix(lines),
        finished=any(line.get("kind") == "end" for line in lines),
        torch=_torch(torch),
        passed_through=bool(torch.get("passed_through")),
        loaders=[_loader(entry) for entry in last.get("loaders") or []],
        faults=[f"{line.get('where')}: {line.get('text')}" for line in lines if line.get("kind") == "fault"],
        deep=deep,
    )


def split_copies(phases: dict[str, float], sampled: list[int]) -> dict[str, float]:
    """A blocking copy waits for the work queued before it: give that part to `device_wait`, as the sampled ones show."""
    on_device, on_host = sampled
    if on_host <= 0:
        return phases
    copying = phases["copy"] * min(1.0, on_device / on_host)
    return {**phases, "copy": copying, "device_wait": phases["device_wait"] + phases["copy"] - copying}


def in_the_parent(stories: list[ProcessStory]) -> dict[str, float]:
    """Of a script whose training runs in processes that it starts: what it does itself when they have ended."""
    waited = [story for story in stories if not story.steps]
    seconds = {name: max((story.phases[name] for story in waited), default=0.0) for name in ("validation", "checkpoint")}
    return {name: spent for name, spent in seconds.items() if spent > 0}


def close_account(
    phases: dict[str, float], wall_s: float, finished: bool, later: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Phases that add up to the wall time: what is left over was `later`, in the parent of the process that trained, came after
    the exit handlers, or is not explained."""
    left = wall_s - sum(phases.values())
    for name, spent in (later or {}).items():
        taken = min(max(0.0, left), spent)
        phases, left = {**phases, name: phases[name] + taken}, left - taken
    if left >= 0:
        name = "shutdown" if finished else "unexplained"
        return {**phases, name: phases[name] + left}
    # The two processes' clocks disagree by less than their start: take it from the start-up.
    return {**phases, "startup": max(0.0, phases["startup"] + left)}


def _named(totals: list[int]) -> dict[str, float]:
    """Journals of wire version 1 have fewer phases; what they called unexplained in the loop was the script's own code."""
    if len(totals) == len(FIRST_PHASES):
        return {**dict.fromkeys(PHASES, 0.0), **_seconds(FIRST_PHASES, totals)}
    return _seconds(PHASES, totals)


def _seconds(names: tuple[str, ...], totals: list[int]) -> dict[str, float]:
    return {name: value * NANO for name, value in zip(names, totals, strict=True)}


def _in_the_loop(window: Line) -> dict[str, float]:
    """The phases up to this window; of the script's own code only what comes with the steps."""
    phases = _named(window["phases"])
    return {**phases, "script": phases["script"] - window.get("script_outside", 0) * NANO}


def _training(window: Line) -> float:
    phases = _in_the_loop(window)
    return sum(phases[name] for name in TRAINING_PHASES)


def _steady(steps: int, last: Line) -> tuple[float | None, float | None, int]:
    """Samples per second, seconds per step, and how many first steps both leave out."""
    samples, spent, warmup = last.get("samples", 0), _training(last), 0
    warm = last.get("warm")
    if warm and steps > 2 * WARM_STEPS:
        warmup = WARM_STEPS
        steps -= WARM_STEPS
        samples -= warm["samples"]
        spent -= _training(warm)
    if not steps or spent <= 0:
        return None, None, 0
    return (samples / spent if samples else None), spent / steps, warmup


def _without_warm_up(last: Line, sampled: list[int]) -> dict[str, float]:
    first, whole = (split_copies(_in_the_loop(window), sampled) for window in (last["warm"], last))
    return {name: max(0.0, spent - first[name]) for name, spent in whole.items()}


def _tokens_per_s(last: Line) -> float | None:
    """Over the whole loop: how many of the tokens fell into the first steps is not told."""
    tokens, spent = readings.tokens_of(last), _training(last)
    return tokens / spent if tokens and spent > 0 else None


def _torch(torch: Line) -> TorchBuild:
    if not torch:
        return TorchBuild(version=Missing("not-imported"))
    return TorchBuild(version=torch["version"], cuda=torch["cuda"], hip=torch["hip"], import_s=torch["import_s"])


def _loader(entry: Line) -> LoaderUse:
    size, workers = entry.get("batch_size"), entry.get("workers")
    return LoaderUse(
        site=entry.get("site") or Missing("not-reported"),
        workers=workers if isinstance(workers, int) else Missing("not-reported"),
        batch_size=size if isinstance(size, int) else Missing("not-reported"),
        pin_memory=bool(entry.get("pin_memory")),
        persistent_workers=bool(entry.get("persistent_workers")),
        wait_s=entry["wait"] * NANO,
        batches=entry["batches"],
    )


def _python_of(journals: list[list[Line]]) -> str | Missing:
    for lines in journals:
        for line in lines:
            if line.get("kind") == "process":
                return str(line.get("python"))
    return Missing("not-reported")


def _notes(lead: ProcessStory, stories: list[ProcessStory]) -> list[Note]:
    notes = []
    if lead.passed_through and isinstance(lead.torch.version, str):
        notes.append(Note(code="torch-too-old", params={"version": lead.torch.version}))
    elif not lead.steps:
        notes.append(Note(code="no-steps"))
    if lead.clocked_by_backward:
        notes.append(Note(code="clocked-by-backward"))
    if lead.steps and lead.samples and not lead.batches:
        notes.append(Note(code="samples-by-inputs"))
    elif lead.steps and not lead.batches:
        notes.append(Note(code="batches-in-another-thread" if lead.foreign_batches else "no-loader"))
    elif lead.unsized_batches:
        notes.append(Note(code="unsized-batches", params={"count": lead.unsized_batches}))
    if lead.steps and not lead.finished:
        notes.append(Note(code="cut-short"))
    faults = dict.fromkeys(fault for story in stories for fault in story.faults)
    return [*notes, *(Note(code="own-fault", params={"text": text}) for text in faults)]


def _nothing_seen(wall_s: float) -> Attribution:
    return Attribution(
        steps=0,
        samples=Missing("no-steps"),
        samples_per_s=Missing("no-steps"),
        step_s=Missing("no-steps"),
        warmup_steps=0,
        phases={name: wall_s if name == "unexplained" else 0.0 for name in PHASES},
        processes=0,
        torch=TorchBuild(version=Missing("not-imported")),
        python=Missing("not-reported"),
        loaders=[],
        notes=[Note(code="torch-not-imported")],
    )
