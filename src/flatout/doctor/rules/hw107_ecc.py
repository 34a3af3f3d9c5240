"""HW107 ecc: the card's memory has errors that it could not correct."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.queries import cuda_codes, gpus, in_container, known, symptom, system, xids
from flatout.doctor.remedy import restart
from flatout.machine.machine_facts import Facts, Gpu

UNCORRECTABLE = 214  # cudaErrorECCUncorrectable

# Double-bit error, failed remapping, contained and uncontained error. 63 and 92 are the repair itself and corrected errors.
MEMORY_XIDS = frozenset({48, 64, 94, 95})


def check(facts: Facts) -> Finding | None:
    numbers = sorted(xids(facts) & MEMORY_XIDS)
    failed = UNCORRECTABLE in cuda_codes(facts) or symptom(facts, "ecc-error") is not None
    gpu = next((gpu for gpu in gpus(facts) if _damaged(gpu)), None)
    counted = gpu or next((gpu for gpu in gpus(facts) if known(gpu.ecc_uncorrected)), None)
    if not numbers and not failed and counted is None:
        return None
    # An error of the past, remapped or retired, is a working repair: nothing waits, nothing failed.
    repaired = not failed and bool(gpus(facts)) and all(_repaired(item) for item in gpus(facts))
    return RULE.found(
        *_steps(facts, counted),
        severity=Severity.NOTE if repaired else Severity.FAULT,
        certain=repaired or bool(numbers) or failed or gpu is not None,
        gpu=counted.name if counted else gpus(facts)[0].name if gpus(facts) else "GPU",
        ecc_uncorrected=known(counted.ecc_uncorrected) if counted else None,
        ecc_pending=known(counted.ecc_pending) if counted else None,
        remap_failed=known(counted.remap_failed) if counted else None,
        xids=numbers or None,
        cuda_error=UNCORRECTABLE if failed else None,
    )


def _damaged(gpu: Gpu) -> bool:
    return gpu.remap_failed is True or gpu.ecc_pending is True


def _repaired(gpu: Gpu) -> bool:
    return gpu.ecc_pending is False and gpu.remap_failed is not True


def _steps(facts: Facts, gpu: Gpu | None) -> list[Fix]:
    look = Fix(command="nvidia-smi -q -d ECC,PAGE_RETIREMENT,ROW_REMAPPER")
    if gpu is not None and gpu.remap_failed is True:
        return [look, Fix(text="replace")]
    reset = f"sudo nvidia-smi --gpu-reset -i {gpu.index if gpu else 0}"
    steps = [Fix(text="stop"), Fix(command=reset)] if system(facts) == "Linux" and not in_container(facts) else [restart(facts)]
    return [look, *steps, Fix(text="again")]


RULE = Rule(code="HW107", name="ecc", layer=Layer.HARDWARE, check=check, explains=("cuda-start-failed",))
