"""PT407 windows-dll-missing: torch's own DLLs are there, but one that Windows should have is not."""

from __future__ import annotations

import re

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import reinstall_torch
from flatout.machine.machine_facts import Facts

# 126: a module or one that it needs is not there; 127: it is there without a function; 1114: it is there and will not start.
LOADER_FAILS = re.compile(r"WinError (126|127|1114)|DLL load failed", re.IGNORECASE)

NEEDED_LIBOMP = "2.4.0"  # its fbgemm.dll wanted libomp140.x86_64.dll, which few machines have; 2.4.1 repaired it


def check(facts: Facts) -> Finding | None:
    said = queries.symptom(facts, "dll-not-found")
    error = queries.known(facts.torch.error) or ""
    broken = (
        facts.torch.status in ("import-failed", "crashed") and queries.system(facts) == "Windows" and LOADER_FAILS.search(error)
    )
    if not said and not broken:
        return None
    library = str(said.params.get("library", "")) if said else _library(error)
    if queries.CUDA_LIBRARIES.search(library):
        return None  # a library of CUDA: its own rule
    version = queries.known(facts.torch.version)
    steps = [Fix(command="winget install --id Microsoft.VCRedist.2015+.x64 -e"), Fix(text="restart-shell")]
    if "fbgemm" in library or (version or "").startswith(NEEDED_LIBOMP):
        steps = [Fix(text="libomp"), *reinstall_torch(facts), *steps]
    return RULE.found(
        *steps,
        certain=bool(said or broken),
        library=library or "torch",
        torch=version,
        python=facts.python.path,
        error=facts.torch.error,
    )


def _library(error: str) -> str:
    match = re.search(r"([\w.+-]+\.(?:dll|pyd))", error)
    return match[1] if match else ""


RULE = Rule(
    code="PT407",
    name="windows-dll-missing",
    layer=Layer.PYTORCH,
    check=check,
    explains=("torch-import-broken", "cuda-start-failed", "cpu-only-wheel"),
)
