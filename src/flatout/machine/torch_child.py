"""torch's own facts, asked in a child of the user's interpreter: however it ends, the answer is facts.

The child writes all it knows before every stage, so that a crash or a hang costs only what comes after it, and names
the stage that it died in.
"""

from __future__ import annotations

import json
import os
import re
import signal
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from flatout.base.records import Missing
from flatout.machine.machine_facts import Cuda, Extension, Interpreter, Library, Torch
from flatout.machine.probe_host import Output, World
from flatout.machine.probes import python_side

LIMIT_S = 60.0
MARK = "flatout-torch-facts "
TRITONS = ("triton", "triton-windows", "pytorch-triton")
# Stages after which torch itself is known to be whole.
BEFORE_TORCH = ("", "interpreter", "packages", "driver")
# torch's sentences without a number, and the CUDA error behind each (c10/cuda/CUDAFunctions.cpp).
SENTENCES = (
    ("No CUDA GPUs are available", 100),
    ("driver on your system is too old", 35),
    ("CUDA unknown error", 999),
    ("CUDA driver initialization failed", 3),
    ("no kernel image is available", 209),
)


class Asked(NamedTuple):
    torch: Torch
    cuda: Cuda
    python: Interpreter
    driver_cuda: str | Missing  # the newest CUDA that libcuda supports, as it says itself


def script() -> Path:
    """The program's file. Its package is run, never imported."""
    return Path(str(resources.files("flatout"))) / "work" / "torch_facts.py"


def ask(world: World, python: str, limit_s: float = LIMIT_S) -> Asked:
    output = world.run([python, str(script())], limit_s)
    known = last_answer(output.stdout)
    died = _died(output)
    if not known:
        return _nothing(world, python, output, died)
    told = known.get("python")
    return Asked(
        torch=_torch(known, died),
        cuda=_cuda(known, died),
        python=python_side.described(python, told) if isinstance(told, dict) else Interpreter(path=python),
        driver_cuda=_driver_cuda(known),
    )


def last_answer(stdout: str) -> dict[str, Any]:
    """The last line that is whole: one may have been cut off in the middle."""
    for line in reversed(stdout.splitlines()):
        start = line.find(MARK)
        if start >= 0:
            try:
                answer = json.loads(line[start + len(MARK) :])
            except ValueError:
                continue
            if isinstance(answer, dict):
                return answer
    return {}


def _died(output: Output) -> tuple[str, str] | None:
    """(status, how) where the child did not end by itself."""
    if output.timed_out:
        return "timeout", "time limit"
    if output.code is None or output.code == 0:
        return None
    if output.code < 0:
        return "crashed", _signal_name(-output.code)
    if output.code >= 0xC0000000:  # Windows: an exception that nobody handled, 0xC0000005 is the access violation
        return "crashed", f"0x{output.code:08X}"
    return "crashed", f"exit code {output.code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _nothing(world: World, python: str, output: Output, died: tuple[str, str] | None) -> Asked:
    """The interpreter did not even begin with our program: too old, broken, or none at all."""
    if output.code is None and not output.timed_out:
        why = Missing("not-found", python)
    else:
        last = (output.stderr.strip().splitlines() or [died[1] if died else ""])[-1][:200]
        why = Missing("interpreter-failed", last)
    return Asked(
        torch=Torch(status=why, error=why, version=why),
        cuda=Cuda(init_code=why, device_count=why, loaded=why, missing_libraries=why),
        python=python_side.interpreter(world, python),
        driver_cuda=why,
    )


def _torch(known: dict[str, Any], died: tuple[str, str] | None) -> Torch:
    status, error = _status(known, died)
    why = Missing("torch-not-imported" if status != "ok" else "not-reported")
    if status == "not-installed":
        why = Missing("not-installed", "torch")
    built_for = known.get("built_for", {})
    sentences = _sentences(known)
    packages = known.get("packages", {})
    cudnn = known.get("cudnn")
    return Torch(
        status=status,
        error=error,
        version=known.get("version", why),
        cuda=built_for["cuda"] or "none" if built_for else why,
        hip=built_for["hip"] or "none" if built_for else why,
        arch_list=known.get("arch_list", why),
        available=known.get("available", why),
        device_count=known.get("device_count", why),
        devices=known.get("devices", [] if known.get("available") is False else why),
        capabilities=known.get("capabilities", [] if known.get("available") is False else why),
        error_code=_error_code(sentences),
        warnings=sentences if "available" in known else why,
        cudnn=cudnn_version(cudnn) if isinstance(cudnn, int) else Missing("not-applicable") if "cudnn" in known else why,
        triton=next((packages[name] for name in TRITONS if name in packages), Missing("not-installed", "triton")),
        path=known.get("path", why),
        installer=_installer(known),
        others=_others(known),
        kernel=_kernel(known, died, why),
        extensions=[
            Extension(name=name, version=version, arch_list=Missing("not-asked"))
            for name, version in packages.items()
            if name not in TRITONS
        ],
    )


def _status(known: dict[str, Any], died: tuple[str, str] | None) -> tuple[str | Missing, str | Missing]:
    stage, faults = str(known.get("stage", "")), known.get("faults", {})
    if died and stage in BEFORE_TORCH:
        # The driver took the process with it before torch was asked.
        return Missing("interpreter-failed", f"{stage}: {died[1]}"), f"{stage}: {died[1]}"
    if died and stage == "import":
        return died
    if "import" in faults:
        return "import-failed", faults["import"]
    if known.get("installed") is False:
        return "not-installed", Missing("not-applicable")
    if "version" not in known:
        # A folder of that name which is not torch: remains of an installation, or the user's own.
        return "import-failed", faults.get("build", died[1] if died else Missing("not-reported"))
    if died and stage in ("build", "devices"):
        return died[0], f"{stage}: {died[1]}"
    return "ok", Missing("not-applicable")


def _kernel(known: dict[str, Any], died: tuple[str, str] | None, why: Missing) -> str | Missing:
    if "kernel" in known:
        return str(known["kernel"])
    if died and known.get("stage") in ("kernel", "cudnn", "convolution"):
        return f"{died[0]}: {died[1]}"
    if "kernel" in known.get("faults", {}):
        return str(known["faults"]["kernel"])
    return Missing("no-device") if known.get("available") is False else why


def _sentences(known: dict[str, Any]) -> list[str]:
    """What torch said about the device, each once: warnings first, then the error that its start gave."""
    faults = known.get("faults", {})
    found = [*known.get("import_warnings", []), *known.get("warnings", [])]
    found += [text for text in (known.get("init_error"), faults.get("devices")) if text]
    return list(dict.fromkeys(found))


def _error_code(sentences: list[str]) -> int | Missing:
    for text in sentences:
        if match := re.search(r"\bError (\d{1,3}): ", text):
            return int(match[1])
    for text in sentences:
        for sentence, code in SENTENCES:
            if sentence in text:
                return code
    return Missing("none-seen")


def cudnn_version(number: int) -> str:
    """91900 is 9.19.0, 8902 is 8.9.2: the thousands moved with version 9."""
    major, rest = divmod(number, 10000 if number >= 90000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _installer(known: dict[str, Any]) -> str | Missing:
    if known.get("conda_torch"):
        return "conda"
    copies, own = known.get("copies", []), _own_copy(known)
    return (copies[own][2] if copies else "") or Missing("not-reported")


def _own_copy(known: dict[str, Any]) -> int:
    """Which of the copies on the path was imported, or would be: the first, unless torch says that it lies elsewhere."""
    place = os.path.realpath(Path(str(known.get("path", ""))).parent.parent)
    return next((index for index, copy in enumerate(known.get("copies", [])) if copy[1] == place), 0)


def _others(known: dict[str, Any]) -> list[str]:
    own = _own_copy(known)
    return [f"{copy[0]} in {copy[1]}" for index, copy in enumerate(known.get("copies", [])) if index != own]


def _cuda(known: dict[str, Any], died: tuple[str, str] | None) -> Cuda:
    answer = known.get("cuda", {})
    if "missing" in answer:
        why = Missing("libcuda-not-found", answer["missing"])
    elif answer.get("timeout") or (died and known.get("stage") == "driver"):
        why = Missing(
            "probe-timeout" if answer.get("timeout") or died == ("timeout", "time limit") else "probe-crashed", "cuInit"
        )
    else:
        why = Missing("not-reported")
    libraries = [
        Library(name=name.lower(), path=path, version=version or Missing("not-reported"))
        for name, path, version in known.get("libraries", [])
    ]
    return Cuda(
        init_code=answer.get("init_code", why),
        device_count=answer.get("device_count", why),
        loaded=libraries if "libraries" in known else Missing("torch-not-imported"),
        missing_libraries=missing_libraries(str(known.get("faults", {}).get("import", ""))),
    )


def missing_libraries(error: str) -> list[str]:
    """From the import's error: the loader of each system names the file in its own way."""
    for pattern in (
        r"(\S+\.so[.\d]*): cannot open shared object file",
        r"Error loading \"?[^\"]*?([^\\/\"]+\.dll)",
        r"Library not loaded: \S*?([^/\s]+\.dylib)",
    ):
        found = re.findall(pattern, error)
        if found:
            return list(dict.fromkeys(found))
    return []


def _driver_cuda(known: dict[str, Any]) -> str | Missing:
    number = known.get("cuda", {}).get("driver_version")
    if not isinstance(number, int) or number <= 0:
        return Missing("not-reported")
    return f"{number // 1000}.{number % 1000 // 10}"
