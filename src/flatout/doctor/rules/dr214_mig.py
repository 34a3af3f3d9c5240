"""DR214 mig: the card is cut into MIG instances, and the program is given none of them, or only one."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import cuda_fails, cuda_works, gpus, known, symptom
from flatout.machine.machine_facts import Facts, Gpu

MASK = "CUDA_VISIBLE_DEVICES"


def check(facts: Facts) -> Finding | None:
    cut = [gpu for gpu in gpus(facts) if gpu.mig_enabled is True or "MIG" in gpu.name]
    asked = [part for part in facts.application.environment.get(MASK, "").split(",") if part.startswith("MIG-")]
    named = any("MIG" in name for name in known(facts.torch.devices) or [])
    if not cut and not asked and not named:
        return None
    reason = _reason(facts, cut, asked)
    if reason is None:
        return None
    return RULE.found(
        *_steps(reason),
        certain=reason != "count" or bool(cut),
        gpu=cut[0].name if cut else "MIG",
        reason=reason,
        instances=sum(len(known(gpu.mig_devices) or []) for gpu in cut),
        visible_devices=asked or None,
        device_count=facts.torch.device_count,
    )


def _reason(facts: Facts, cut: list[Gpu], asked: list[str]) -> str | None:
    listed = [known(gpu.mig_devices) for gpu in cut]
    instances = [name for names in listed if names for name in names]
    given = any(_names(entry, instance) for entry in asked for instance in instances)
    if asked and instances and not given and not cuda_works(facts):
        return "stale"  # the UUIDs change whenever the instances are made anew
    if listed and all(names == [] for names in listed) and len(cut) == len(gpus(facts)) and not cuda_works(facts):
        return "empty"
    if symptom(facts, "device-count-wrong"):
        return "count"
    # An instance that is there is not why CUDA fails.
    if asked and not given and (facts.torch.device_count == 0 or (cuda_fails(facts) and not cuda_works(facts))):
        return "count"
    return None


def _names(entry: str, instance: str) -> bool:
    """Any beginning of the UUID names it; the form of old drivers (MIG-GPU-…/1/0) cannot be looked up among UUIDs."""
    return "/" in entry or instance.lower().startswith(entry.strip().lower())


def _steps(reason: str) -> list[Fix]:
    show = Fix(command="nvidia-smi -L")
    one = Fix(command="CUDA_VISIBLE_DEVICES=MIG-<uuid> python train.py")
    if reason == "empty":
        return [
            Fix(text="create"),
            Fix(command="sudo nvidia-smi mig -lgip"),
            Fix(command="sudo nvidia-smi mig -cgi <profile> -C"),
            Fix(text="or-whole"),
            Fix(command="sudo nvidia-smi -mig 0"),
        ]
    if reason == "stale":
        return [Fix(text="anew"), show, one]
    return [Fix(text="one-each"), show, one, Fix(text="upgrade")]


RULE = Rule(
    code="DR214",
    name="mig",
    layer=Layer.DRIVER,
    check=check,
    explains=("visible-devices", "compute-mode", "wrong-device-index", "cuda-start-failed"),
)
