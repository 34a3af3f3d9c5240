"""CU303 library-shadowing: another copy of cuDNN or of a CUDA library is loaded instead of the one that came with torch."""

from __future__ import annotations

import posixpath
import re

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.machine.machine_facts import Facts, Library

# Libraries of which one process must have one release. The driver's own (cuda) is the driver rules' business.
ONE_OF_A_KIND = ("cudnn", "cublas", "cusparse", "cusolver", "cufft", "nvjitlink", "nccl", "nvrtc", "cudart")

# How mixed releases fail: a symbol that the other release does not have, or cuDNN's and cuBLAS' own refusals.
MIXED = re.compile(
    r"undefined symbol|version mismatch|VERSION_MISMATCH|CUDNN_STATUS|CUBLAS_STATUS_(NOT_SUPPORTED|INVALID)|WinError 127",
    re.IGNORECASE,
)


def check(facts: Facts) -> Finding | None:
    mismatch, lost = queries.symptom(facts, "cudnn-version-mismatch"), _lost_symbol(facts)
    double = _two_releases(queries.known(facts.cuda.loaded) or [])
    before = [library for library in queries.known(facts.cuda.shadowing) or [] if library.name in ONE_OF_A_KIND]
    search_path = _cuda_on_search_path(facts)
    fails = any(MIXED.search(queries.known(text) or "") for text in (facts.torch.error, facts.torch.kernel))
    if not mismatch and not double and not lost and not (fails and (before or search_path)):
        return None  # a library before torch's own does no harm while nothing fails
    taken = double or before
    return RULE.found(
        *_fix(facts, taken),
        certain=bool(mismatch or double or before),
        libraries=[_described(library) for library in taken] or [search_path or lost or "cudnn"],
        compiled=mismatch.params.get("compiled") if mismatch else None,
        found=mismatch.params.get("found") if mismatch else None,
        search_path=search_path,
        torch=facts.torch.version,
    )


def _described(library: Library) -> str:
    return " ".join(part for part in (library.name, queries.known(library.version), queries.known(library.path)) if part)


def _lost_symbol(facts: Facts) -> str | None:
    """The library of CUDA that misses a symbol in another one."""
    said = queries.symptom(facts, "undefined-symbol")
    name = str(said.params.get("library", "")) if said else ""
    return name if queries.CUDA_LIBRARIES.search(name) else None


def _two_releases(loaded: list[Library]) -> list[Library]:
    """Libraries of one kind from two places, unless both are known to be the same release."""
    for kind in ONE_OF_A_KIND:
        same = [library for library in loaded if library.name == kind and isinstance(library.path, str)]
        by_folder = {posixpath.dirname((queries.known(library.path) or "").replace("\\", "/")): library for library in same}
        versions = {queries.known(library.version) for library in same}
        if len(by_folder) > 1 and (len(versions) > 1 or None in versions):
            return list(by_folder.values())
    return []


def _cuda_on_search_path(facts: Facts) -> str | None:
    """The folders of CUDA or cuDNN that LD_LIBRARY_PATH puts before torch's own."""
    folders = facts.application.environment.get("LD_LIBRARY_PATH", "").split(":")
    found = [folder for folder in folders if re.search(r"cuda|cudnn", folder, re.IGNORECASE) and "stubs" not in folder]
    return ":".join(found) or None


def _fix(facts: Facts, taken: list[Library]) -> list[Fix]:
    if queries.system(facts) == "Windows":
        steps = [Fix(command="where cudnn64_9.dll cudnn64_8.dll cublas64_12.dll"), Fix(text="windows-path")]
    else:
        steps = [Fix(command="unset LD_LIBRARY_PATH"), Fix(text="permanent")]
    if any((queries.known(library.path) or "").startswith(("/usr/lib", "/lib")) for library in taken):
        steps.append(Fix(command="dpkg -l | grep -i cudnn"))
        steps.append(Fix(text="system-copy"))
    return [*steps, Fix(text="check")]


RULE = Rule(
    code="CU303",
    name="library-shadowing",
    layer=Layer.CUDA,
    check=check,
    explains=("cuda-start-failed", "torch-import-broken", "cuda-libraries-missing", "windows-dll-missing"),
)
