"""What a run's table says of the device: bound by what, memory, the card before and after, and why memory ran out."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.machine.card_totals import SLOWDOWNS
from flatout.machine.run_look import GpuChange, OutOfMemory
from flatout.measure.model import Summary
from flatout.report import numbers
from flatout.report.terminal import RenderableType, Text, hanging

MOST_OTHERS = 3


def bound_line(summary: Summary, words: Words) -> str | None:
    """Nothing where it is unknown: a sentence that says so helps nobody."""
    key = f"bound-by.{summary.bound_by}"
    if not words.has(key):
        return None
    return words(key, **{name: numbers.percent(share) for name, share in _evidence(summary).items()})


def _evidence(summary: Summary) -> dict[str, float]:
    return {"input": 0.0, "copy": 0.0, "starved": 0.0, **summary.bound_evidence}


def memory_line(summary: Summary, words: Words) -> str | None:
    memory = summary.device.memory
    if memory is None or isinstance(memory.peak_bytes, Missing) or not memory.peak_bytes:
        return None
    peak = numbers.gibibytes(memory.peak_bytes)
    if isinstance(memory.peak_reserved_bytes, Missing) or isinstance(memory.total_bytes, Missing):
        return words("run.memory-short", peak=peak)
    reserved, total = numbers.gibibytes(memory.peak_reserved_bytes), numbers.gibibytes(memory.total_bytes)
    return words("run.memory", peak=peak, reserved=reserved, total=total)


def gpu_lines(summary: Summary, words: Words) -> list[str]:
    """One line for each card that the run has used."""
    lines = [(gpu.name, _gpu_parts(gpu, words)) for gpu in summary.gpus if gpu.used]
    return [words("run.gpu", name=name, parts=words("run.comma").join(parts)) for name, parts in lines if parts]


def _gpu_parts(gpu: GpuChange, words: Words) -> list[str]:
    parts = []
    if isinstance(gpu.used_before_bytes, int) and isinstance(gpu.used_after_bytes, int):
        before, after = numbers.gibibytes(gpu.used_before_bytes), numbers.gibibytes(gpu.used_after_bytes)
        parts.append(words("run.gpu-used", before=before, after=after))
    during = gpu.during
    if isinstance(gpu.temperature_before_c, int) and isinstance(gpu.temperature_after_c, int):
        heat = {"before": gpu.temperature_before_c, "after": gpu.temperature_after_c}
        most = during.temperature_max_c if during else None
        hotter = isinstance(most, int) and most > max(heat.values())
        parts.append(words("run.gpu-hottest", most=most, **heat) if hotter else words("run.gpu-heat", **heat))
    if during and isinstance(during.sm_clock_mhz, float) and isinstance(during.sm_clock_max_mhz, int):
        parts.append(words("run.gpu-clock", clock=round(during.sm_clock_mhz), most=during.sm_clock_max_mhz))
    slowed = max((count for name, count in during.held_back.items() if name in SLOWDOWNS), default=0) if during else 0
    if during and slowed:
        parts.append(words("run.gpu-held", share=numbers.percent(slowed / during.working)))
    if gpu.others_after:
        parts.append(words("run.gpu-others", names=words("run.comma").join(gpu.others_after[:MOST_OTHERS])))
    return parts


def post_mortem(told: OutOfMemory, words: Words) -> list[RenderableType]:
    """What held the memory, what would fit, what to try."""
    plain = isinstance(told.step, Missing)
    title = words("shortage.title-plain") if plain else words("shortage.title", step=told.step)
    held = [_holder(holder.what, holder.bytes, words) for holder in told.holders]
    details = [] if isinstance(told.batch, Missing) else [words("shortage.batch", count=told.batch)]
    details += [words("shortage.held", parts=words("run.comma").join(held))] if held else []
    if not isinstance(told.memory.total_bytes, Missing):
        details.append(words("shortage.of-total", total=numbers.gibibytes(told.memory.total_bytes)))
    lines: list[RenderableType] = [Text(title, style="bold red")]
    lines += [hanging("  ", words("run.comma").join(details))] if details else []
    if isinstance(told.fits_batch_estimated, int):
        key = "shortage.fits" if told.fits_batch_estimated else "shortage.fits-none"
        lines.append(hanging("  ", words(key, count=told.fits_batch_estimated)))
    if told.try_next:
        # Never broken by us: it is copied whole.
        command = words("shortage.try", command=shown_command(told.try_next))
        lines.append(Text(f"  {command}", style="cyan", no_wrap=True, overflow="ignore"))
    return lines


def _holder(what: str, size: int, words: Words) -> str:
    key = f"shortage.{what}"
    return words(key if words.has(key) else "shortage.other", size=numbers.gibibytes(size))


def shown_command(command: list[str]) -> str:
    """As the user would type it: `flatout run train.py …`, with the interpreter left out where it is one."""
    first, *rest = command
    arguments = rest if PurePath(first).name.startswith("python") else [PurePath(first).name, *rest]
    return f"flatout run {shlex.join(arguments)}"
