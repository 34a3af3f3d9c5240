"""AP502 wrong-device-index: the program asks for a GPU by a number that does not exist among those it sees."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import devices_visible, known, number, symptom
from flatout.doctor.remedy import python_command
from flatout.machine.machine_facts import Facts

INVALID_DEVICE = (101, 10)  # cudaErrorInvalidDevice, and its number before CUDA 10.1


def check(facts: Facts) -> Finding | None:
    named = symptom(facts, "invalid-device-ordinal")
    coded = any(item.code == "cuda-error" and item.params.get("code") in INVALID_DEVICE for item in facts.symptoms)
    visible = devices_visible(facts)
    wanted = number(named, "ordinal")
    beyond = None
    if not named and not coded:
        beyond = _beyond(facts, visible)
        if beyond is None:
            return None
    index = int(wanted) if wanted is not None else beyond
    if visible is None and symptom(facts, "no-cuda-gpus"):
        return None  # there is no right number either
    return RULE.found(
        *_fix(facts, visible),
        certain=beyond is None,
        asked="cuda:?" if index is None else f"cuda:{index}",
        visible=visible,
        visible_devices=facts.application.environment.get("CUDA_VISIBLE_DEVICES"),
        line=facts.application.script.lines.get("device_strings") if beyond is not None else None,
    )


def _beyond(facts: Facts, visible: int | None) -> int | None:
    """The highest number in the script or configuration that the visible devices do not reach."""
    if not visible:
        return None
    names = known(facts.application.script.device_strings) or []
    indices = [int(name.partition(":")[2]) for name in names if name.startswith("cuda:")]
    return max((index for index in indices if index >= visible), default=None)


def _fix(facts: Facts, visible: int | None) -> list[Fix]:
    count = Fix(command=f'{python_command(facts)} -c "import torch; print(torch.cuda.device_count())"')
    steps = [count, Fix(text="count-from-zero")]
    if visible:
        steps = [Fix(text="highest", params={"highest": visible - 1, "visible": visible})]
    if "CUDA_VISIBLE_DEVICES" in facts.application.environment:
        steps.append(Fix(text="renumbered"))
    return [*steps, Fix(text="ranks")]


RULE = Rule(
    code="AP502",
    name="wrong-device-index",
    layer=Layer.APPLICATION,
    check=check,
    explains=("cuda-start-failed", "device-mismatch"),
)
