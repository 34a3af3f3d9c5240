"""CU304 cuda-libraries-missing: a library of CUDA that torch needs (cuDNN, cuBLAS, NCCL, NVRTC …) cannot be loaded."""

from __future__ import annotations

import re

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import install_wheel, pip, reinstall_torch
from flatout.machine import compatibility
from flatout.machine.machine_facts import Facts

# Their names in file names and error messages. libcuda (nvcuda.dll) is the driver's, and the driver rules' business.
OURS = re.compile(
    r"(cudnn|cublas|nccl|nvrtc|cudart|cufft|curand|cusolver|cusparse|nvjitlink|cupti|nvtx|nvtoolsext|cufile)", re.I
)

NOT_ON_WINDOWS = "nccl"

# Libraries whose file names carry the CUDA release itself: libcudart.so.11.0 is of CUDA 11.
NUMBERED_BY_CUDA = re.compile(r"(?:cudart|cublas|cublasLt|nvrtc|cupti)(?:\.so\.|64_)(\d{2})")


def check(facts: Facts) -> Finding | None:
    missing = [name for name in queries.known(facts.cuda.missing_libraries) or [] if queries.CUDA_LIBRARIES.search(name)]
    if queries.system(facts) == "Windows":
        missing = [name for name in missing if NOT_ON_WINDOWS not in name.lower()]
    said = queries.symptom(facts, "shared-library-not-found", "dll-not-found")
    named = str(said.params.get("library", "")) if said else ""
    error = queries.known(facts.torch.error) or ""
    if queries.CUDA_LIBRARIES.search(named):
        missing.append(named)
    elif facts.torch.status == "import-failed" and (lost := _named_in(error)):
        missing.append(lost)
    if not missing:
        return None
    return RULE.found(
        *_fix(facts, missing),
        libraries=sorted(set(missing)),
        torch=facts.torch.version,
        installer=facts.torch.installer,
        error=facts.torch.error,
    )


def _named_in(error: str) -> str | None:
    """The library that a loader's message names: "libcudnn.so.9: cannot open shared object file"."""
    if not re.search(r"cannot open shared object|DLL load failed|WinError 126", error):
        return None
    words = re.findall(r"[\w.+-]+\.(?:so[\w.]*|dll)", error)
    return next((word for word in words if queries.CUDA_LIBRARIES.search(word)), None)


def _fix(facts: Facts, missing: list[str]) -> list[Fix]:
    """The very torch again, with what it depends on; the libraries are packages of their own beside it."""
    version, built = queries.known(facts.torch.version), queries.build_cuda(facts)
    wanted = [match[1] for name in missing if (match := NUMBERED_BY_CUDA.search(name))]
    if built and wanted and wanted[0] != built[0].split(".")[0]:
        return [Fix(text="other-cuda", params={"library": missing[0], "wanted": wanted[0], "cuda": built[0]})]
    steps = [pip(facts, "list | findstr nvidia" if queries.system(facts) == "Windows" else "list | grep nvidia")]
    wheel = compatibility.wheel_of(version, built[0]) if version and built else None
    if wheel is not None and version:
        return [*steps, *install_wheel(facts, wheel, version.split("+")[0]), Fix(text="no-toolkit")]
    return [*steps, *reinstall_torch(facts), Fix(text="no-toolkit")]


RULE = Rule(
    code="CU304",
    name="cuda-libraries-missing",
    layer=Layer.CUDA,
    check=check,
    explains=("cuda-start-failed", "torch-import-broken", "windows-dll-missing"),
)
