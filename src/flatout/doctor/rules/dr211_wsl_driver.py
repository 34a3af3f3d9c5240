"""DR211 wsl-driver: WSL cannot reach the GPU through the driver of Windows."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import cuda_codes, cuda_fails, cuda_works, driver_answers, in_container, known, symptom
from flatout.doctor.remedy import install_driver
from flatout.machine.machine_facts import Facts

OURS = "/usr/lib/wsl/"  # where WSL mounts the libcuda that belongs to the driver of Windows

PURGE = (
    "sudo apt-get purge '^nvidia-driver-.*' '^libnvidia-compute-.*' '^nvidia-utils-.*' cuda-drivers && sudo apt-get autoremove"
)

OTHER_CODES = frozenset({35, 36, 46, 802, 804})  # errors with a cause of their own

OUT_OF_MEMORY = 2  # what starting CUDA may answer where two drivers meet; anywhere else it is what it says


def check(facts: Facts) -> Finding | None:
    if facts.system.wsl is not True or in_container(facts) or cuda_works(facts) or cuda_codes(facts) & OTHER_CODES:
        return None
    full_at_start = OUT_OF_MEMORY in cuda_codes(facts) and not symptom(facts, "out-of-memory")
    if not cuda_fails(facts) and driver_answers(facts) is not False and not full_at_start:
        return None
    nodes, foreign = known(facts.driver.device_nodes), _foreign_libcuda(facts)
    no_device = nodes is not None and "/dev/dxg" not in nodes
    return RULE.found(
        *(_without_device(facts) if no_device else _with_device(facts)),
        certain=no_device or foreign is not None,
        dxg=not no_device if nodes is not None else None,
        libcuda=foreign,
        cuda_error=min(cuda_codes(facts)) if cuda_codes(facts) else None,
        smi=facts.driver.smi,
        wsl=True,
    )


def _foreign_libcuda(facts: Facts) -> str | None:
    """A driver library of Linux's own that is found before the one of WSL."""
    libraries = [*(known(facts.cuda.loaded) or []), *(known(facts.cuda.shadowing) or [])]
    paths = [known(library.path) for library in libraries if library.name in ("cuda", "libcuda", "libcuda.so.1")]
    return next((path for path in paths if path and not path.startswith(OURS)), None)


def _without_device(facts: Facts) -> list[Fix]:
    return [Fix(text="powershell"), Fix(command="wsl --update"), Fix(command="wsl --list --verbose"), *install_driver(facts)]


def _with_device(facts: Facts) -> list[Fix]:
    return [
        Fix(text="purge"),
        Fix(command=PURGE),
        Fix(command="sudo ldconfig && ldconfig -p | grep libcuda.so"),
        Fix(text="first"),
        Fix(command="export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH"),
        *install_driver(facts),
    ]


RULE = Rule(
    code="DR211",
    name="wsl-driver",
    layer=Layer.DRIVER,
    check=check,
    explains=("no-driver", "driver-not-answering", "driver-library-mismatch", "cuda-start-failed"),
)
