"""Images in channels-last memory format: the roots' 4-D parameters, their gradients and the optimizer's state of them.

The optimizer's state goes along, or the fused step would refuse it; in its checkpoints it lies as the script has it.
Inputs are converted as they enter a root, 4-D results come out in the plain format, so that the script may `.view()` them.
"""

from __future__ import annotations

from typing import Any, Callable
from weakref import ref

from _flatout_agent.knobs.knob import Knob, Outcome, Scene, already, applied, refused
from _flatout_agent.knobs.module_wrapper import Layer, Outfit, Run
from _flatout_agent.knobs.nested_tensors import changed_tensors


class LayoutLayer(Layer):
    """Images in, channels last; images out, as they were."""

    rank = 20

    def __init__(self, torch: Any, first_convolution: Any, put_back: Callable[[], None]) -> None:
        self._torch = torch
        self._put_back = put_back
        self._first: Callable[[], Any] = ref(first_convolution)
        self._looks = True
        self.calls = 0
        self.seen: str | None = None  # memory format of a real activation

    def looks(self) -> bool:
        return self._looks and not self.calls

    def wrap(self, inner: Run) -> Run:
        torch = self._torch
        last, plain = torch.channels_last, torch.contiguous_format

        def turned(tensor: Any) -> Any:
            if tensor.dim() != 4:
                return tensor
            return as_channels_last(tensor) if tensor.shape[1] == 1 else tensor.contiguous(memory_format=last)

        def straight(tensor: Any) -> Any:
            return tensor.contiguous(memory_format=plain) if tensor.dim() == 4 else tensor

        def run(module: Any, args: Any, kwargs: Any) -> Any:
            self.calls += 1
            args = changed_tensors(torch, args, turned, depth=2)
            if kwargs:
                kwargs = changed_tensors(torch, kwargs, turned, depth=2)
            if self._looks and not run.compiled:  # type: ignore[attr-defined]
                answer = self._look_at_one_activation(inner, module, args, kwargs)
            else:
                answer = inner(module, args, kwargs)
            return changed_tensors(torch, answer, straight)

        return run

    def abandon(self) -> bool:
        self._put_back()  # with turned weights the plain call would fail as well
        return True

    def _look_at_one_activation(self, inner: Run, module: Any, args: Any, kwargs: Any) -> Any:
        convolution = self._first()
        last = self._torch.channels_last

        def look(_: Any, __: Any, output: Any) -> None:
            plain, turned = output.is_contiguous(), output.is_contiguous(memory_format=last)
            if turned != plain:  # one pixel or one channel is both
                self.seen = "channels_last" if turned else "contiguous"
                self._looks = False

        handle = convolution.register_forward_hook(look)
        try:
            return inner(module, args, kwargs)
        finally:
            handle.remove()


class ChannelsLast(Knob):
    name = "channels_last"

    def __init__(self) -> None:
        self._torch: Any = None
        self._worn: list[tuple[Outfit, LayoutLayer]] = []
        self._parameters: list[tuple[Callable[[], Any], tuple[int, ...]]] = []  # with the strides that the script gave them
        self._optimizers: list[Callable[[], Any]] = []
        self._handles: list[Any] = []

    @classmethod
    def foretold(cls, scene: Scene, value: Any) -> Outcome | None:
        none = all(_first_convolution(scene.torch, root) is None for root in scene.roots)
        return refused("no-2d-convolutions") if none else None

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        self._torch = torch = scene.torch
        found = [(root, _first_convolution(torch, root)) for root in scene.roots]
        with_convolutions = [(root, first) for root, first in found if first is not None]
        if not with_convolutions:
            return refused("no-2d-convolutions")
        for root, _ in with_convolutions:
            why = scene.wardrobe.obstacle(root)
            if why is not None:
                return refused(why[0], **why[1])
        images = [p for root, _ in with_convolutions for p in root.parameters() if p.dim() == 4]
        if any(type(p).__name__ == "DTensor" or type(p.data).__name__ == "DTensor" for p in images):
            return refused("sharded-module")
        if all(p.is_contiguous(memory_format=torch.channels_last) and not p.is_contiguous() for p in images if _tells(p)):
            return already("parameters-are-channels-last") if any(_tells(p) for p in images) else refused("no-2d-convolutions")
        for root, first in with_convolutions:
            layer = LayoutLayer(torch, first, self.take_off)
            outfit = scene.wardrobe.outfit(root)
            self._worn.append((outfit, layer))
            outfit.wear(layer)
        self._turn(scene, images)
        return applied(parameters=len(images), optimizers=len(self._optimizers))

    def _turn(self, scene: Scene, images: list[Any]) -> None:
        self._parameters = [(ref(parameter), parameter.stride()) for parameter in images]
        self._optimizers = [ref(optimizer) for optimizer in scene.optimizers]
        for parameter in images:
            self._lay(parameter, self._torch.channels_last)
        for optimizer in scene.optimizers:
            self._carry_state(optimizer)
            self._handles.append(optimizer.register_state_dict_post_hook(self._as_the_script_has_it))
            self._handles.append(optimizer.register_load_state_dict_post_hook(self._carry_state))

    def _lay(self, parameter: Any, layout: Any) -> None:
        """In place of the data, not of the parameter: optimizers and the script hold on to that."""
        with self._torch.no_grad():
            parameter.data = parameter.data.contiguous(memory_format=layout)
            if parameter.grad is not None and not parameter.grad.is_sparse:
                parameter.grad.data = parameter.grad.data.contiguous(memory_format=layout)

    def _carry_state(self, optimizer: Any) -> None:
        for reference, _ in self._parameters:
            parameter = reference()
            kept: dict[str, Any] = (optimizer.state.get(parameter) if parameter is not None else None) or {}
            for name, tensor in list(kept.items()):
                if isinstance(tensor, self._torch.Tensor) and tensor.shape == parameter.shape:
                    kept[name] = like(self._torch, tensor, parameter.stride())

    def _as_the_script_has_it(self, optimizer: Any, saved: dict[str, Any]) -> dict[str, Any]:
        own = {id(reference()): strides for reference, strides in self._parameters}
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        numbers = [number for group in saved["param_groups"] for number in group["params"]]
        state = dict(saved["state"])
        for number, parameter in zip(numbers, parameters):  # noqa: B905
            strides = own.get(id(parameter))
            if strides is not None and isinstance(state.get(number), dict):
                state[number] = {
                    name: like(self._torch, part, strides) if getattr(part, "shape", None) == parameter.shape else part
                    for name, part in state[number].items()
                }
        return {**saved, "state": state}

    def take_off(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        for outfit, layer in self._worn:
            outfit.drop(layer)
        for reference, strides in self._parameters:
            parameter = reference()
            if parameter is not None:
                with self._torch.no_grad():
                    parameter.data = like(self._torch, parameter.data, strides)
                    if parameter.grad is not None and not parameter.grad.is_sparse:
                        parameter.grad.data = like(self._torch, parameter.grad.data, strides)
        for optimizer in self._optimizers:
            if optimizer() is not None:
                self._carry_state(optimizer())

    def proof(self) -> Outcome:
        layers = [layer for _, layer in self._worn]
        faults = [layer.fault for layer in layers if layer.fault]
        if faults:
            return refused("raised", error=faults[0])
        if not any(layer.calls for layer in layers):
            return refused("not-called-yet")
        seen = [layer.seen for layer in layers if layer.seen]
        if "channels_last" in seen:
            return applied(activation="channels_last")
        return refused("activation-not-channels-last" if seen else "no-activation-seen")


def like(torch: Any, tensor: Any, strides: tuple[int, ...]) -> Any:
    """The same values with these strides; the same tensor where it has them."""
    if tensor.stride() == strides:
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def as_channels_last(tensor: Any) -> Any:
    """One channel lies the same in both formats: by its strides alone a convolution takes it for the plain one."""
    plain = tensor.contiguous()
    _, _, height, width = plain.shape
    return plain.as_strided(plain.shape, (height * width, 1, width, 1))


def _first_convolution(torch: Any, root: Any) -> Any:
    """The first whose weights can tell the formats apart, if there is one: of one input channel both are the same."""
    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    found = [module for module in root.modules() if isinstance(module, kinds)]
    telling = (module for module in found if module.weight.dim() == 4 and _tells(module.weight))
    return next(telling, found[0] if found else None)


def _tells(parameter: Any) -> bool:
    """Whether its strides can tell the formats apart."""
    return bool(parameter.shape[1] > 1 and parameter.shape[2] * parameter.shape[3] > 1)
