"""What is known of each layer: in one line, and in full."""

from __future__ import annotations

from collections.abc import Callable

from flatout.base.records import Missing, dump
from flatout.base.words import Words
from flatout.doctor.model import Layer
from flatout.machine.machine_facts import Facts
from flatout.report import numbers
from flatout.report.machine import why
from flatout.report.terminal import Table


def one_line(layer: Layer, facts: Facts, words: Words) -> str:
    return LINES[layer](facts, words)


def _hardware(facts: Facts, words: Words) -> str:
    gpus = facts.driver.gpus
    if not isinstance(gpus, Missing) and gpus:
        return "; ".join(
            gpu.name
            if isinstance(gpu.memory_total_bytes, Missing)
            else f"{gpu.name}, {numbers.gibibytes(gpu.memory_total_bytes)}"
            for gpu in gpus
        )
    devices = facts.hardware.pci
    if isinstance(devices, Missing):
        return ""
    names = [device.vendor if isinstance(device.name, Missing) else device.name for device in devices]
    return "; ".join(names) or words("doctor.no-display-device")


def _driver(facts: Facts, words: Words) -> str:
    driver = facts.driver
    if not isinstance(driver.version, Missing):
        text = f"NVIDIA {driver.version}"
        return text if isinstance(driver.cuda, Missing) else words("machine.driver-cuda", driver=text, cuda=driver.cuda)
    if isinstance(driver.nvml_error, str) and driver.nvml_error != "none":
        return why(Missing(driver.nvml_error), words)
    return ""


def _cuda(facts: Facts, words: Words) -> str:
    code, count = facts.cuda.init_code, facts.cuda.device_count
    if isinstance(count, Missing):
        count = facts.torch.device_count
    if not isinstance(code, Missing) and code:
        return words("doctor.cuda-error", code=code)
    if facts.torch.available is True or code == 0:
        return words("doctor.cuda-starts", count=count) if not isinstance(count, Missing) else words("doctor.cuda-ok")
    return why(code, words) if facts.source == "probed" else ""


def _pytorch(facts: Facts, words: Words) -> str:
    torch = facts.torch
    if isinstance(torch.version, Missing):
        return words(f"doctor.torch-{torch.status}") if isinstance(torch.status, str) else ""
    build = f"CUDA {torch.cuda}" if isinstance(torch.cuda, str) and torch.cuda != "none" else ""
    if isinstance(torch.hip, str) and torch.hip != "none":
        build = f"ROCm {torch.hip}"
    if not build and torch.cuda == "none":
        build = words("doctor.cpu-build")
    parts = [f"torch {torch.version}", build]
    if not isinstance(facts.python.version, Missing):
        parts.append(f"Python {facts.python.version}")
    return ", ".join(part for part in parts if part)


def _application(facts: Facts, words: Words) -> str:
    shown = [f"{name}={value}" for name, value in sorted(facts.application.environment.items()) if "VISIBLE_DEVICES" in name]
    look = facts.application.script
    if not isinstance(look.path, Missing):
        shown.append(look.path)
    if not isinstance(look.workers, Missing):
        shown.append(f"num_workers={look.workers}")
    if shown:
        return ", ".join(shown)
    return words("doctor.environment-plain") if facts.source == "probed" else ""


LINES: dict[Layer, Callable[[Facts, Words], str]] = {
    Layer.HARDWARE: _hardware,
    Layer.DRIVER: _driver,
    Layer.CUDA: _cuda,
    Layer.PYTORCH: _pytorch,
    Layer.APPLICATION: _application,
}


def details(facts: Facts, words: Words) -> Table:
    """Every fact by name, as it is in the record; what is missing with its reason."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(style="bright_black")
    table.add_column(overflow="fold")
    for part in ("system", "processor", "memory", "python", "hardware", "driver", "cuda", "torch", "application"):
        for name in getattr(facts, part).__struct_fields__:
            value = getattr(getattr(facts, part), name)
            table.add_row(f"{part}.{name}", why(value, words) if isinstance(value, Missing) else _plain(value))
    return table


def _plain(value: object) -> str:
    return str(dump(value))
