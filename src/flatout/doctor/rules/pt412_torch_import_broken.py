"""PT412 torch-import-broken: `import torch` dies or hangs, for a reason that no other rule knows."""

from __future__ import annotations

import re

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import python_command, reinstall_torch
from flatout.machine.machine_facts import Facts

# What the death says of its cause; the first that matches. Each has a sentence of its own on the page.
KINDS = (
    ("shadowed-by-file", re.compile(r"partially initialized module 'torch'|module 'torch' has no attribute", re.IGNORECASE)),
    ("old-system", re.compile(r"GLIBC(XX)?_[\d.]+'? not found", re.IGNORECASE)),
    ("old-processor", re.compile(r"SIGILL|illegal instruction", re.IGNORECASE)),
    ("old-numpy", re.compile(r"numpy|_ARRAY_API", re.IGNORECASE)),
    ("no-memory", re.compile(r"paging file|WinError 1455|cannot allocate memory|SIGKILL|MemoryError", re.IGNORECASE)),
    ("mixed-releases", re.compile(r"undefined symbol|Symbol not found|cannot import name", re.IGNORECASE)),
)


def check(facts: Facts) -> Finding | None:
    status = queries.known(facts.torch.status)
    if status not in ("import-failed", "crashed", "timeout"):
        return None
    error = queries.known(facts.torch.error) or ""
    kind = "hangs" if status == "timeout" else next((name for name, pattern in KINDS if pattern.search(error)), "unknown")
    reinstall = reinstall_torch(facts) if kind in ("mixed-releases", "unknown") else []
    return RULE.found(
        Fix(command=f'{python_command(facts)} -X faulthandler -c "import torch; print(torch.__file__)"'),
        Fix(text=kind),
        *reinstall,
        status=status,
        error=error or status,
        kind=kind,
        torch=facts.torch.version,
        python=facts.python.path,
    )


RULE = Rule(
    code="PT412",
    name="torch-import-broken",
    layer=Layer.PYTORCH,
    check=check,
    explains=("cuda-start-failed",),
)
