"""The fingerprint of here and now: script, torch, driver, GPU. torch's version is read from files, not imported."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from flatout.base.errors import FlatoutError
from flatout.knobs.profile import Fingerprint
from flatout.launch import device
from flatout.machine import nvml, probe_host
from flatout.machine.machine_facts import Driver

LIMIT_S = 10.0
MARK = "flatout-torch "
# Finding a package imports nothing of it; its version file is a few lines of text.
PROGRAM = (
    "import importlib.util as u, os, re; s = u.find_spec('torch'); "
    "p = os.path.join(os.path.dirname(s.origin), 'version.py'); "
    "print(" + repr(MARK) + " + re.search(r'__version__ = .([^\\'\"]+)', open(p).read()).group(1))"
)

CPU = "CPU"


def here(
    python: str, script: Path | None, environ: Mapping[str, str], gpu_id: str | None, recorded: Fingerprint
) -> Fingerprint:
    """`recorded` says which of several cards was meant: which one the script takes is known only once it runs."""
    driver = nvml.driver()
    torch = torch_version(python, environ)
    return Fingerprint(
        script=sha256_of(script),
        torch=torch,
        driver=driver.version if isinstance(driver.version, str) else "",
        card=CPU if torch.endswith("+cpu") else card_of(driver, environ, gpu_id, recorded.card),
    )


def card_of(driver: Driver, environ: Mapping[str, str], gpu_id: str | None, recorded: str) -> str:
    try:
        chosen = device.decide(driver, environ, gpu_id).name or CPU
    except FlatoutError:  # no such card: the run itself says so
        return ""
    names = [gpu.name for gpu in driver.gpus] if isinstance(driver.gpus, list) else []
    return recorded if gpu_id is None and chosen != CPU and recorded in names else chosen


def sha256_of(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def torch_version(python: str, environ: Mapping[str, str]) -> str:
    """ "2.13.0+cu128", or nothing where this interpreter has none."""
    output = probe_host.run([python, "-c", PROGRAM], LIMIT_S, environ)
    lines = [line for line in output.stdout.splitlines() if line.startswith(MARK)]
    return lines[-1].removeprefix(MARK).strip() if lines else ""
