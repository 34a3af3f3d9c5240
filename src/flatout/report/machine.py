"""A machine in a few lines."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.machine.machine_facts import UNKNOWN, Gpu, Machine
from flatout.report import numbers


def lines(machine: Machine, words: Words) -> list[tuple[str, str]]:
    """(label, value) pairs, in the order of the layers."""
    return [
        (words("machine.system"), _system(machine, words)),
        (words("machine.processor"), _processor(machine, words)),
        (words("machine.memory"), _memory(machine, words)),
        (words("machine.gpu"), _gpus(machine, words)),
        (words("machine.driver"), _driver(machine, words)),
        (words("machine.python"), f"{known(machine.python.version, words)} ({machine.python.path})"),
    ]


def one_line(machine: Machine, words: Words) -> str:
    gpus = machine.gpus
    name = words("machine.no-gpu-short") if isinstance(gpus, Missing) or not gpus else _gpu_names(gpus)
    parts = [f"{known(machine.system.name, words)} {known(machine.system.architecture, words)}"]
    if not isinstance(machine.processor.usable, Missing):
        parts.append(words("machine.cores", count=numbers.count(machine.processor.usable)))
    if not isinstance(machine.memory.total_bytes, Missing):
        parts.append(numbers.gibibytes(machine.memory.total_bytes))
    return ", ".join([*parts, name])


def known(value: object, words: Words) -> str:
    return why(value, words) if isinstance(value, Missing) else str(value)


def why(missing: Missing, words: Words) -> str:
    key = f"missing.{missing.reason}"
    return words(key) if words.has(key) else missing.reason


def _system(machine: Machine, words: Words) -> str:
    system = machine.system
    return " ".join(known(part, words) for part in (system.name, system.release, system.architecture))


def _processor(machine: Machine, words: Words) -> str:
    processor = machine.processor
    parts = []
    if not isinstance(processor.cores, Missing):
        parts.append(words("machine.cores", count=processor.cores))
    if processor.usable_reason != "all" and not isinstance(processor.usable, Missing):
        limit = words(f"machine.limit-{processor.usable_reason}")
        parts.append(words("machine.usable", count=numbers.count(processor.usable), limit=limit))
    if not isinstance(processor.model, Missing):
        parts.append(processor.model)
    return ", ".join(parts)


def _memory(machine: Machine, words: Words) -> str:
    memory = machine.memory
    if isinstance(memory.total_bytes, Missing) or isinstance(memory.available_bytes, Missing):
        return why(UNKNOWN, words)
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
    gpus = machine.gpus
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
    if isinstance(machine.driver, Missing):
        return why(machine.driver, words)
    return words("machine.driver-cuda", driver=machine.driver, cuda=known(machine.cuda, words))
