"""PT404 arch-not-in-extension: torch fits the card, a compiled package beside it (flash-attn, xformers, vllm …) does not."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.architecture import no_kernel, runs_on
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.remedy import pip, python_command
from flatout.machine.machine_facts import Extension, Facts


def check(facts: Facts) -> Finding | None:
    card, codes = queries.capability(facts), queries.arch_list(facts)
    if card is None or queries.symptom(facts, "arch-not-compatible"):
        return None
    extensions = queries.known(facts.torch.extensions) or []
    unfit = [item for item in extensions if (listed := queries.known(item.arch_list)) and not runs_on(listed, card)]
    torch_fits = facts.torch.kernel == "ok" or (codes is not None and runs_on(codes[0], card))
    if not torch_fits or not (unfit or no_kernel(facts)):
        return None
    suspects = unfit or extensions
    return RULE.found(
        *_fix(facts, suspects, card),
        certain=bool(unfit) or facts.torch.kernel == "ok",
        gpu=queries.any_nvidia_gpu(facts),
        capability=card,
        torch=facts.torch.version,
        extensions=[f"{item.name} {queries.known(item.version) or ''}".strip() for item in suspects] or None,
        has=(queries.known(unfit[0].arch_list) or []) if unfit else None,
    )


def _fix(facts: Facts, suspects: list[Extension], card: str) -> list[Fix]:
    names = " ".join(item.name for item in suspects)
    if not names:
        return [Fix(text="find"), Fix(text="rebuild", params={"capability": card})]
    build = f"{python_command(facts)} -m pip install --force-reinstall --no-deps --no-cache-dir --no-build-isolation"
    source = f"{build} --no-binary {names.replace(' ', ',')} {names}"
    windows = queries.system(facts) == "Windows"
    prefix = f'set "TORCH_CUDA_ARCH_LIST={card}" && ' if windows else f'TORCH_CUDA_ARCH_LIST="{card}" '
    return [pip(facts, f"install --upgrade --no-deps {names}"), Fix(text="else-build"), Fix(command=prefix + source)]


RULE = Rule(
    code="PT404",
    name="arch-not-in-extension",
    layer=Layer.PYTORCH,
    check=check,
    explains=("cuda-start-failed",),
)
