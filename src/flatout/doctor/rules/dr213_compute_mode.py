"""DR213 compute-mode: the card accepts one process only, or none."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import cuda_codes, cuda_works, gpus, kernel_error, known
from flatout.doctor.remedy import privileged
from flatout.machine.machine_facts import Facts

UNAVAILABLE = 46  # cudaErrorDevicesUnavailable
BUSY = "busy or unavailable"  # its words: a card that is taken is counted, and refuses the first kernel

EXCLUSIVE = ("exclusive_process", "exclusive_thread")


def check(facts: Facts) -> Finding | None:
    cards = gpus(facts)
    closed = [gpu for gpu in cards if gpu.compute_mode == "prohibited"]
    single = [gpu for gpu in cards if known(gpu.compute_mode) in EXCLUSIVE]
    refused = UNAVAILABLE in cuda_codes(facts) or BUSY in (kernel_error(facts) or "")
    all_closed = bool(cards) and len(closed) == len(cards) and not cuda_works(facts)
    if not refused and not all_closed:
        return None  # exclusive and free is how clusters want it
    if refused and any(gpu.mig_enabled is True for gpu in cards) and not single and not closed:
        return None  # DR214
    gpu = next(iter([*closed, *single]), None)
    # Every mode is known and none of them refuses anybody: the error has another reason (a hung card, MPS).
    open_to_all = bool(cards) and gpu is None and all(known(item.compute_mode) == "default" for item in cards)
    if open_to_all:
        return None
    return RULE.found(
        Fix(text="who"),
        Fix(command="nvidia-smi --query-gpu=index,compute_mode --format=csv"),
        Fix(command="nvidia-smi --query-compute-apps=pid,name --format=csv"),
        Fix(text="open"),
        privileged(facts, f"nvidia-smi -i {gpu.index} -c DEFAULT" if gpu else "nvidia-smi -c DEFAULT"),
        Fix(text="cluster"),
        certain=gpu is not None,
        gpu=gpu.name if gpu else "GPU",
        compute_mode=known(gpu.compute_mode) if gpu else "?",
        cuda_error=UNAVAILABLE if refused else None,
        processes=len(known(gpu.processes) or []) if gpu and known(gpu.processes) is not None else None,
    )


RULE = Rule(
    code="DR213", name="compute-mode", layer=Layer.DRIVER, check=check, explains=("memory-held-by-other", "cuda-start-failed")
)
