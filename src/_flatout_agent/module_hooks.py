"""Hooks of ours on every module's call, for a few steps.

Whoever asks torch whether there are global hooks on modules hears of the script's alone: `torch.compile(module)` warns
of any, at each call.
"""

from __future__ import annotations

from typing import Any

from _flatout_agent.guard import fault
from _flatout_agent.patch import Patches, dress

KINDS = ("backward_pre_hooks", "backward_hooks", "forward_pre_hooks", "forward_hooks")
ASKED = "_has_any_global_hook"  # since torch 2.6
WITH_NAMES = "_global_forward_hooks_with_kwargs"  # the same

_ours: set[int] = set()  # the keys of all that are on
_asked = Patches()  # torch's answer: its own again only once none of ours is left to be told of


class Hooks:
    def __init__(self, modules: Any) -> None:
        self._modules = modules
        self.handles: list[Any] = []

    def take_off(self) -> None:
        for handle in self.handles:
            handle.remove()
            getattr(self._modules, WITH_NAMES, {}).pop(handle.id, None)
            _ours.discard(handle.id)
        self.handles.clear()
        if not _ours:
            _asked.take_off()


def put_on(entered: Any, left: Any, named: bool = False) -> Hooks:
    """`entered(module, args)` before a call; `left(module, args, output)` after it, also where it raised.

    Where `named`, `left(module, args, kwargs, output)`; not before torch 2.6, and not where the call raised.
    """
    from torch.nn.modules import module as modules

    hooks = Hooks(modules)
    if hasattr(modules, ASKED) and not _ours:
        _asked.put(modules, ASKED, _without_ours(modules))
    try:
        hooks.handles.append(modules.register_module_forward_pre_hook(entered))
        after = modules.register_module_forward_hook(left, always_call=True)
        hooks.handles.append(after)
        if named and hasattr(modules, WITH_NAMES):
            getattr(modules, WITH_NAMES)[after.id] = True
        _ours.update(handle.id for handle in hooks.handles)
    except BaseException:
        hooks.take_off()
        raise
    return hooks


def _without_ours(modules: Any) -> Any:
    def _has_any_global_hook() -> Any:
        try:
            return any(key not in _ours for kind in KINDS for key in getattr(modules, "_global_" + kind))
        except Exception as error:
            fault("module_hooks.asked", error)
            return False  # the original would tell of ours, and the script mostly has none

    return dress(_has_any_global_hook, getattr(modules, ASKED))
