"""AP501 visible-devices: a variable keeps the program from the card that it should use, or was set too late to matter."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule, Severity
from flatout.doctor.remedy import set_variable, unset_variable
from flatout.machine import choose, visible
from flatout.machine.machine_facts import Facts
from flatout.machine.visible import CUDA, HIP, ROCR, Visible

# Whether these entries exist depends on the list of cards, and a paste may not show all of them.
NEEDS_THE_LIST = ("out-of-range", "unknown-uuid", "ambiguous-uuid")


def check(facts: Facts) -> Finding | None:
    return _rocm(facts) or _cuda(facts) or _late(facts)


def _cuda(facts: Facts) -> Finding | None:
    value, gpu = facts.application.environment.get(CUDA), queries.any_nvidia_gpu(facts)
    if value is None or queries.known(facts.torch.hip) not in (None, "none") or (gpu is None and facts.source == "probed"):
        return None
    slots = visible.slots(queries.gpus(facts), "nvidia")
    left = visible.resolve(value, slots or None)
    if left.problem is None or not left.decided:
        return None
    if left.count == 0 and not queries.cuda_works(facts):
        fails, listed = queries.cuda_fails(facts), facts.source == "probed"
        if left.problem in NEEDS_THE_LIST and not listed and not fails:
            return None
        sure = listed or (left.problem not in NEEDS_THE_LIST and (fails or gpu is not None))
        return _found(facts, CUDA, left, *_repair(facts, len(slots)), certain=sure, cards=len(slots) or None)
    if facts.source == "probed" and left.count:
        severity = Severity.SLOW if left.count < len(slots) else Severity.NOTE
        return _found(facts, CUDA, left, *_repair(facts, len(slots)), severity=severity, cards=len(slots))
    return None


def _rocm(facts: Facts) -> Finding | None:
    """Two lists, one applied to what the other leaves; or the processor's graphics shown and the card hidden."""
    environment, cards = facts.application.environment, [gpu for gpu in queries.gpus(facts) if gpu.vendor == "amd"]
    nvidia = queries.known(facts.torch.cuda) not in (None, "none")
    if nvidia or not (HIP in environment or ROCR in environment):
        return None
    left = visible.rocm(environment, visible.slots(cards, "amd") or None)
    both = HIP in environment and ROCR in environment
    name = HIP if HIP in environment else ROCR
    nothing = left.count == 0 and left.problem is not None and not queries.cuda_works(facts)
    if nothing and (both or cards or left.problem not in NEEDS_THE_LIST):
        steps = [Fix(text="one-list"), *unset_variable(facts, HIP)] if both else unset_variable(facts, name)
        return _found(
            facts, name, left, *steps, certain=both or bool(cards), rocr=environment.get(ROCR), hip=environment.get(HIP)
        )
    kinds = {gpu.index: choose.kind_of(gpu, queries.known(facts.hardware.pci) or []) for gpu in cards}
    shown = {kinds.get(index) for index in left.cards}
    card = next((gpu for gpu in cards if kinds[gpu.index] == "discrete"), None)
    if card is None or shown != {"integrated"}:
        return None
    hides = Visible(count=left.count, problem="hides-discrete", entry=environment.get(name, ""))
    return _found(facts, name, hides, set_variable(facts, name, str(card.index)), gpu=card.name)


def _late(facts: Facts) -> Finding | None:
    """CUDA reads the variable once, when it starts. After `import torch` alone it is still in time."""
    script, ignored = facts.application.script, queries.symptom(facts, "visible-devices-ignored")
    started = script.lines.get("cuda_started")
    if not ignored and (script.sets_visible_devices_late is not True or not started):
        return None
    steps = (Fix(text="in-shell"), Fix(command="CUDA_VISIBLE_DEVICES=1 python train.py"), Fix(text="first-lines"))
    if queries.system(facts) == "Windows":
        steps = (Fix(text="in-shell"), set_variable(facts, CUDA, "1"), Fix(text="first-lines"))
    return RULE.found(
        *steps,
        Fix(text="set-device"),
        certain=ignored is not None,
        setting=CUDA,
        problem="late",
        line=script.lines.get("sets_visible_devices_late"),
        cuda_started_line=started,
    )


def _repair(facts: Facts, cards: int) -> list[Fix]:
    steps = unset_variable(facts, CUDA)
    if cards > 1:
        return [*steps, Fix(text="or-name"), set_variable(facts, CUDA, ",".join(str(index) for index in range(cards)))]
    return steps


def _found(
    facts: Facts,
    name: str,
    left: Visible,
    *fix: Fix,
    severity: Severity = Severity.FAULT,
    certain: bool = True,
    **more: object,
) -> Finding:
    value = facts.application.environment.get(name) or '""'
    setting, entry = f"{name}={value}", left.entry or None
    evidence = {"setting": setting, "problem": left.problem, "entry": entry, "visible": left.count, **more}
    return RULE.found(*fix, severity=severity, certain=certain, **evidence)


RULE = Rule(
    code="AP501",
    name="visible-devices",
    layer=Layer.APPLICATION,
    check=check,
    explains=("wrong-device-index", "cuda-start-failed", "rocm-igpu"),
)
