"""A machine in a few lines."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.machine.model import Gpu, Machine
from flatout.report import numbers


def lines(machine: Machine, words: Words) -> list[tuple[str, str]]:
    """(label, value) pairs, in the order of the layers."""
    return [
        (words("machine.system"), f"{machine.system.name} {machine.system.release} {machine.system.architecture}"),
        (words("machine.processor"), _processor(machine, words)),
        (words("machine.memory"), _memory(machine, words)),
        (words("machine.gpu"), _gpus(machine, words)),
        (words("machine.driver"), _driver(machine, words)),
        (words("machine.python"), f"{known(machine.python.version, words)} ({machine.python.path})"),
    ]


def one_line(machine: Machine, words: Words) -> str:
    gpus = machine.graphics.gpus
    name = words("machine.no-gpu-short") if isinstance(gpus, Missing) or not gpus else _gpu_names(gpus)
    cores = words("machine.cores", count=numbers.count(machine.processor.usable))
    return (
        f"{machine.system.name} {machine.system.architecture}, {cores}, {numbers.gibibytes(machine.memory.total_bytes)}, {name}"
    )


def known(value: object, words: Words) -> str:
    return why(value, words) if isinstance(value, Missing) else str(value)


def why(missing: Missing, words: Words) -> str:
    key = f"missing.{missing.reason}"
    return words(key) if words.has(key) else missing.reason


def _processor(machine: Machine, words: Words) -> str:
    processor = machine.processor
    text = words("machine.cores", count=processor.cores)
    if processor.usable_reason != "all":
        limit = words(f"machine.limit-{processor.usable_reason}")
        text += f", {words('machine.usable', count=numbers.count(processor.usable), limit=limit)}"
    return text if isinstance(processor.model, Missing) else f"{text}, {processor.model}"


def _memory(machine: Machine, words: Words) -> str:
    memory = machine.memory
    text = words(
        "machine.memory-available",
        total=numbers.gibibytes(memory.total_bytes),
        available=numbers.gibibytes(memory.available_bytes),
    )
    if isinstance(memory.limit_bytes, Missing):
        return text
    return f"{text}, {words('machine.memory-limit', limit=numbers.gibibytes(memory.limit_bytes))}"


def _gpu_names(gpus: list[Gpu]) -> str:
    names = [gpu.name for gpu in gpus]
    return ", ".join(f"{names.count(name)}× {name}" if names.count(name) > 1 else name for name in dict.fromkeys(names))


def _gpus(machine: Machine, words: Words) -> str:
    gpus = machine.graphics.gpus
    if isinstance(gpus, Missing):
        return words("machine.no-gpu", why=why(gpus, words))
    if not gpus:
        return words("machine.no-gpu-short")
    return "; ".join(_gpu(gpu, words) for gpu in gpus)


def _gpu(gpu: Gpu, words: Words) -> str:
    parts = [f"{gpu.index}: {gpu.name}"]
    if not isinstance(gpu.memory_total_bytes, Missing):
        parts.append(numbers.gibibytes(gpu.memory_total_bytes))
    if not isinstance(gpu.capability, Missing):
        parts.append(words("machine.capability", value=gpu.capability))
    return ", ".join(parts)


def _driver(machine: Machine, words: Words) -> str:
    graphics = machine.graphics
    if isinstance(graphics.driver, Missing):
        return why(graphics.driver, words)
    return words("machine.driver-cuda", driver=graphics.driver, cuda=known(graphics.cuda, words))
