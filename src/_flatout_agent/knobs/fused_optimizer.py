"""One kernel for an optimizer's whole step (`fused`), or few (`foreach`), where the script left the choice open.

Checkpoints keep the script's own values and places: a run that is resumed without us must find what it would have written.
"""

from __future__ import annotations

from typing import Any, Callable
from weakref import ref

from _flatout_agent.knobs.knob import Knob, Outcome, Scene, already, applied, refused

_ABSENT = object()


class FusedOptimizer(Knob):
    name = "fused_optimizer"

    def __init__(self) -> None:
        self._changed: list[_Changed] = []

    @classmethod
    def foretold(cls, scene: Scene, value: Any) -> Outcome | None:
        choices = [_choice(scene.torch, optimizer) for optimizer in scene.optimizers]
        return choices[0][0] if choices and all(kind is None for _, kind in choices) else None

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        if not scene.optimizers:
            return refused("no-optimizer-found")
        refusals, done = [], []
        for optimizer in scene.optimizers:
            why, kind = _choice(scene.torch, optimizer)
            if kind is None:
                refusals.append(why)
                continue
            changed = _Changed(scene.torch, optimizer, kind)
            self._changed.append(changed)
            changed.put_on()
            done.append(kind)
        if done:
            return applied(kinds=done, left_out=[why.code for why in refusals])
        return refusals[0]

    def take_off(self) -> None:
        for changed in self._changed:
            changed.take_off()

    def proof(self) -> Outcome:
        seen = [changed.seen() for changed in self._changed if changed.optimizer() is not None]
        if not seen:
            gone = [changed for changed in self._changed if changed.steps]  # dropped with the script's function, or its fold
            if gone:
                return applied(kinds=[changed.kind for changed in gone], steps=[changed.steps for changed in gone])
            return refused("optimizer-is-gone")
        lost = [kind for kind, on, _ in seen if not on]
        if lost:
            return refused("flag-lost", kinds=lost)
        if not any(steps for _, _, steps in seen):
            return refused("no-step-yet")
        return applied(kinds=[kind for kind, _, _ in seen], steps=[steps for _, _, steps in seen])


class _Changed:
    """One optimizer whose param groups carry our flag, and what stood there before."""

    def __init__(self, torch: Any, optimizer: Any, kind: str) -> None:
        self._torch = torch
        self.optimizer: Callable[[], Any] = ref(optimizer)
        self.kind = kind
        self.steps = 0
        self._own: dict[int, tuple[Any, Any]] = {}  # id of a param group -> the script's fused and foreach
        self._own_defaults = {name: optimizer.defaults.get(name, _ABSENT) for name in ("fused", "foreach")}
        self._own_scaling = vars(optimizer).get("_step_supports_amp_scaling", _ABSENT)
        self._handles: list[Any] = []

    def put_on(self) -> None:
        optimizer = self.optimizer()
        self._flag(optimizer)
        self._handles = [
            optimizer.register_step_post_hook(self._stepped),
            optimizer.register_state_dict_post_hook(self._as_the_script_has_it),
            optimizer.register_load_state_dict_post_hook(self._loaded),
        ]

    def take_off(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        optimizer = self.optimizer()
        if optimizer is None:
            return
        for group in optimizer.param_groups:
            # A group added meanwhile took the defaults, which were the script's own.
            for name, value in zip(("fused", "foreach"), self._own.get(id(group), (_ABSENT, _ABSENT))):  # noqa: B905
                if value is not _ABSENT:
                    group[name] = value
        if self._own_scaling is _ABSENT:
            vars(optimizer).pop("_step_supports_amp_scaling", None)
        else:
            optimizer._step_supports_amp_scaling = self._own_scaling
        self._place_steps(optimizer)

    def seen(self) -> tuple[str, bool, int]:
        groups = self.optimizer().param_groups
        return self.kind, all(group.get(self.kind) for group in groups), self.steps

    def _flag(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            self._own.setdefault(id(group), (group.get("fused", _ABSENT), group.get("foreach", _ABSENT)))
            if self.kind == "fused":
                group["fused"], group["foreach"] = True, False
            else:
                group["foreach"] = True
        if self.kind == "fused":
            # GradScaler then leaves unscaling and skipping to the kernel, without waiting for the device.
            optimizer._step_supports_amp_scaling = True
        self._place_steps(optimizer)

    def _place_steps(self, optimizer: Any) -> None:
        """The fused kernels count their steps on the device, the others on the host."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                state = optimizer.state.get(parameter)
                step = state.get("step") if state else None
                if isinstance(step, self._torch.Tensor):
                    place = parameter.device if group.get("fused") or group.get("capturable") else "cpu"
                    state["step"] = step.to(place)

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.steps += 1

    def _as_the_script_has_it(self, optimizer: Any, saved: dict[str, Any]) -> dict[str, Any]:
        groups = []
        for live, packed in zip(optimizer.param_groups, saved["param_groups"]):  # noqa: B905
            own = self._own.get(id(live))
            packed = dict(packed)
            for name, value in zip(("fused", "foreach"), own or ()):  # noqa: B905
                if value is not _ABSENT:
                    packed[name] = value
            groups.append(packed)
        return {**saved, "param_groups": groups, "state": self._steps_as_before(optimizer, saved["state"])}

    def _steps_as_before(self, optimizer: Any, state: dict[Any, Any]) -> dict[Any, Any]:
        if self.kind != "fused" or any(group.get("capturable") for group in optimizer.param_groups):
            return state
        return {
            key: {name: part.cpu() if name == "step" and hasattr(part, "cpu") else part for name, part in kept.items()}
            if isinstance(kept, dict)
            else kept
            for key, kept in state.items()
        }

    def _loaded(self, optimizer: Any) -> None:
        """A checkpoint brought new groups with the script's values: ours go on again."""
        self._own.clear()
        self._flag(optimizer)


def _choice(torch: Any, optimizer: Any) -> tuple[Outcome, str | None]:
    """What to turn on for this optimizer, or why nothing."""
    name = type(optimizer).__name__
    groups = optimizer.param_groups
    for flag in ("fused", "foreach"):
        if any(group.get(flag) for group in groups):
            if flag == "fused":
                return already("script-set-fused", optimizer=name), None
            return refused("script-set-foreach", optimizer=name), None  # a few kernels are not one
        if any(group.get(flag) is not None for group in groups):
            return refused("script-chose", optimizer=name, flag=flag, value=groups[0].get(flag)), None
    if not type(optimizer).step.__module__.startswith("torch.optim"):
        return refused("own-step", optimizer=name), None
    if any(group.get("differentiable") for group in groups):
        return refused("differentiable", optimizer=name), None
    parameters = [parameter for group in groups for parameter in group["params"]]
    if "fused" in groups[0] and _fits_fused(torch, parameters) and not (name == "Adagrad" and parameters[0].is_cuda):
        return applied(), "fused"
    devices = {parameter.device.type for parameter in parameters}
    if "foreach" in groups[0] and devices <= {"cuda", "xpu"}:
        # Already torch's own choice on such a device where the script left it open.
        return already("foreach-is-the-default", optimizer=name), None
    return refused("no-fused-kernel", optimizer=name, devices=sorted(devices)), None


def _fits_fused(torch: Any, parameters: list[Any]) -> bool:
    from torch.utils import _foreach_utils

    supported = getattr(_foreach_utils, "_get_fused_kernels_supported_devices", lambda: ["cuda"])()
    return all(
        type(p).__name__ in ("Parameter", "Tensor", "Buffer") and p.device.type in supported for p in parameters
    ) and all(parameter.is_floating_point() and parameter.layout == torch.strided for parameter in parameters)
