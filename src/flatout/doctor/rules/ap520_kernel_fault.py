"""AP520 kernel-fault: a kernel of the program itself failed on the GPU: an index out of range, a bad address."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import cuda_codes, system
from flatout.machine.machine_facts import Facts

# Errors that only running kernels give; the card and the driver are well, CUDA has started long before.
FAULTS = {
    700: "illegal-address",
    710: "assert",
    715: "illegal-instruction",
    716: "misaligned-address",
    719: "launch-failure",
}


def check(facts: Facts) -> Finding | None:
    if facts.source == "probed":
        return None  # a program's errors are in what it printed, not in the machine
    code = next((code for code in sorted(cuda_codes(facts)) if code in FAULTS), None)
    if code is None:
        return None
    blocking = "set CUDA_LAUNCH_BLOCKING=1" if system(facts) == "Windows" else "CUDA_LAUNCH_BLOCKING=1 python train.py"
    steps = [Fix(text="cpu"), Fix(text="blocking"), Fix(command=blocking)]
    steps.append(Fix(text="labels" if code == 710 else "sanitizer"))
    return RULE.found(*steps, error_code=code, kind=FAULTS[code])


RULE = Rule(
    code="AP520",
    name="kernel-fault",
    layer=Layer.APPLICATION,
    check=check,
    explains=("cuda-start-failed",),
)
