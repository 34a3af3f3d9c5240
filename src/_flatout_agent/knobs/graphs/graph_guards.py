"""What a module and its parts hold, looked at before every replay: a recording is right only for what it was made with."""

from __future__ import annotations

from operator import is_
from typing import Any

from _flatout_agent.core.patches import Patches, dress
from _flatout_agent.knobs.graphs.forward_purity import SCALARS, bookkeeping, same

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks")


class Holdings:
    """Held, not only noted: what is gone could leave its address to another one."""

    def __init__(self, torch: Any, module: Any) -> None:
        from torch.nn.modules import module as modules

        parts = self.parts = list(module.modules())
        self._places = [place for part in parts for place in (part._modules, part._parameters, part._buffers)]
        self._sizes = list(map(len, self._places))
        self._filled = [place for place in self._places if place]
        self._held = [each for place in self._filled for each in place.values()]
        self.weights = _tensors(part._parameters for part in parts)
        self.buffers = _tensors(part._buffers for part in parts)
        kept = [value for part in parts for value in vars(part).values()]
        self.attributes = [value for value in kept if isinstance(value, torch.Tensor)]
        self._tensors = [*self.weights, *self.buffers, *self.attributes]
        self._shaped = [each for each in self._tensors if each.dim() > 1]
        self._looks = self._looks_now()
        self._hooks = [getattr(part, name) for part in parts for name in HOOKS]
        self._hooks += [getattr(modules, name) for name in GLOBAL_HOOKS]
        self._numbers = self._numbers_now()

    def hooked(self) -> bool:
        return any(self._hooks)

    def same(self) -> bool:
        """The same parts and tensors, on the same memory."""
        if list(map(len, self._places)) != self._sizes:
            return False
        now = [each for place in self._filled for each in place.values()]
        return all(map(is_, now, self._held)) and self._looks_now() == self._looks

    def _looks_now(self) -> tuple[list[Any], ...]:
        """In whole lists: this is done before every replay."""
        addresses = [each.data_ptr() for each in self._tensors]
        return addresses, [each.requires_grad for each in self.weights], [each.stride() for each in self._shaped]

    def same_numbers(self) -> bool:
        now = self._numbers_now()
        return len(now) == len(self._numbers) and all(
            one[0] == other[0] and same(one[1], other[1])
            for one, other in zip(now, self._numbers)  # noqa: B905
        )

    def _numbers_now(self) -> list[tuple[str, Any]]:
        apart = bookkeeping(self.parts[0]) - {"training"}
        return [(name, value) for part in self.parts for name, value in vars(part).items() if name not in apart]

    def wanted(self) -> list[Any]:
        """Whose gradients are asked for."""
        return list({id(each): each for each in self.weights if each.requires_grad}.values())

    def devices(self) -> set[Any]:
        return {each.device for each in self._tensors}


def _tensors(places: Any) -> list[Any]:
    return [each for place in places for each in place.values() if each is not None]


class Attributes:
    """Notices that a module was given another attribute than it had; cheap where that is rare."""

    def __init__(self, torch: Any) -> None:
        self.version = 0
        self._watched: dict[int, Any] = {}
        self._patches = Patches()
        kind = torch.nn.Module
        original = kind.__setattr__

        def __setattr__(module: Any, name: str, value: Any) -> None:
            if id(module) not in self._watched:
                original(module, name, value)
                return
            held = vars(module)
            before = held.get(name, held)
            original(module, name, value)
            if not (type(value) in SCALARS and same(before, value)):
                self.version += 1

        self._patches.put(kind, "__setattr__", dress(__setattr__, original))

    def watch(self, parts: list[Any]) -> None:
        self._watched.update((id(part), part) for part in parts)

    def take_off(self) -> None:
        self._patches.take_off()
