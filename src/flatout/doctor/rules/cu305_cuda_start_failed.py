"""CU305 cuda-start-failed: CUDA does not start, or not even the smallest kernel runs, and nothing that is known says why.

Every rule that does know explains it.
"""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import restart
from flatout.machine import compatibility
from flatout.machine.machine_facts import Facts

# What a program that runs can get long after CUDA has started: in a pasted message they say nothing of its start.
WHILE_RUNNING = frozenset({1, 2, 200, 209, 214, 218, 220, 222, 700, 702, 710, 716, 719, 98})

FULL = "out of memory"  # no riddle: the rules on memory say whose it is


def check(facts: Facts) -> Finding | None:
    if queries.works(facts):
        return None
    code = queries.cuda_error(facts)
    # Live, the code comes from starting CUDA; in a paste it is whatever the program printed.
    at_start = facts.source == "probed" and bool(queries.error_code(facts)) and code != 209
    if code is not None and not at_start and code in WHILE_RUNNING:
        return None
    kernel = queries.kernel_error(facts) or ""
    failed = bool(kernel) and FULL not in kernel
    gpu = queries.any_nvidia_gpu(facts) or (next(iter(queries.known(facts.torch.devices) or []), None) if failed else None)
    if gpu is None and facts.source == "probed":
        return None  # nothing to start CUDA for
    if code is None and not failed and not _unexplained(facts):
        return None
    row = (compatibility.error_row(code) if code is not None else None) or {}
    return RULE.found(
        *_fix(facts),
        certain=False,  # a code is not yet a cause
        error_code=code,
        error=row.get("name"),
        meaning=row.get("meaning"),
        kernel=kernel or None,
        gpu=gpu,
        driver=facts.driver.version,
        torch=facts.torch.version,
    )


def _unexplained(facts: Facts) -> bool:
    """torch says no without a code, although it could: not a CPU build, not a Mac, not for want of torch."""
    if queries.cpu_build(facts) or queries.system(facts) == "Darwin" or queries.known(facts.torch.hip) not in (None, "none"):
        return False
    return queries.complains(facts) and queries.known(facts.torch.status) in (None, "ok")


def _fix(facts: Facts) -> list[Fix]:
    listing = "set CUDA" if queries.system(facts) == "Windows" else "env | grep -i cuda"
    return [Fix(command="nvidia-smi"), Fix(command=listing), restart(facts), Fix(text="report")]


RULE = Rule(
    code="CU305",
    name="cuda-start-failed",
    layer=Layer.CUDA,
    check=check,
)
