"""PT408 wrong-environment: a torch that works is on this machine, but not in the environment that was used."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.architecture import runs_on
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import python_command, reinstall_torch
from flatout.machine.machine_facts import Facts


def check(facts: Facts) -> Finding | None:
    elsewhere = queries.symptom(facts, "works-elsewhere")
    stranger = _complaint_of_another(facts)
    others = [name for name in queries.known(facts.torch.others) or [] if "+cpu" not in name]
    lacking = facts.torch.status == "not-installed" or queries.cpu_build(facts)
    useful = bool(others) and lacking and (queries.any_nvidia_gpu(facts) is not None or facts.torch.status == "not-installed")
    if not elsewhere and not stranger and not useful:
        return None
    return RULE.found(
        *_fix(facts),
        certain=(bool(elsewhere) or stranger) and not queries.cpu_build(facts),
        python=facts.python.path,
        torch=facts.torch.version,
        others=others or None,
        gpu=queries.any_nvidia_gpu(facts),
        symptom=elsewhere.code if elsewhere else None,
    )


def _complaint_of_another(facts: Facts) -> bool:
    """The message says that torch has no code for the card; the torch that was asked has it, and sees the card."""
    complaint, card, codes = queries.symptom(facts, "arch-not-compatible"), queries.capability(facts), queries.arch_list(facts)
    if not complaint or not card or not codes or not codes[1] or not runs_on(codes[0], card):
        return False
    supported = str(complaint.params.get("supported", "")).replace(",", " ").split()
    return not supported or not runs_on(supported, card)


def _fix(facts: Facts) -> list[Fix]:
    where = "where python" if queries.system(facts) == "Windows" else "which -a python python3"
    ask = f'{python_command(facts)} -c "import sys, torch; print(sys.executable, torch.__version__, torch.__file__)"'
    return [Fix(command=where), Fix(command=ask), Fix(text="use-that"), Fix(text="or-install-here"), *reinstall_torch(facts)]


RULE = Rule(
    code="PT408",
    name="wrong-environment",
    layer=Layer.PYTORCH,
    check=check,
    explains=("torch-not-installed", "arch-not-in-wheel", "arch-not-in-extension", "cuda-start-failed"),
)
