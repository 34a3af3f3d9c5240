"""Hooks of ours on every module's call, for a few steps.

Whoever asks torch whether there are global hooks on modules hears of the script's alone: `torch.compile(module)` warns
of any, at each call.
"""

from __future__ import annotations

import sys
from typing import Any

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import Patches, dress

KINDS = ("backward_pre_hooks", "backward_hooks", "forward_pre_hooks", "forward_hooks")
ASKED = "_has_any_global_hook"  # since torch 2.6
BEFORE, AFTER, ALWAYS = "_global_forward_pre_hooks", "_global_forward_hooks", "_global_forward_hooks_always_called"
WITH_NAMES = "_global_forward_hooks_with_kwargs"  # since torch 2.6

_ours: set[int] = set()  # the keys of all that are on: torch numbers the script's from 0 on, and the next number is its to see
_asked = Patches()  # torch's answer: its own again only once none of ours is left to be told of


class Hooks:
    def __init__(self, modules: Any) -> None:
        self._modules = modules
        self.key = min(_ours, default=0) - 1
        _ours.add(self.key)

    def take_off(self) -> None:
        for name in (BEFORE, AFTER, ALWAYS, WITH_NAMES):
            getattr(self._modules, name, {}).pop(self.key, None)
        _ours.discard(self.key)
        if not _ours:
            _asked.take_off()


def put_on(entered: Any, left: Any, named: bool = False) -> Hooks:
    """`entered(module, args)` before a call; `left(module, args, output)` after it, also where it raised.

    Where `named`, `left(module, args, kwargs, output)`; not before torch 2.6, and not where the call raised.
    """
    from torch.nn.modules import module as modules

    if hasattr(modules, ASKED) and not _ours:
        _asked.put(modules, ASKED, _without_ours(modules))
    hooks = Hooks(modules)
    try:
        getattr(modules, BEFORE)[hooks.key] = entered
        getattr(modules, AFTER)[hooks.key] = left
        getattr(modules, ALWAYS)[hooks.key] = True
        if named and hasattr(modules, WITH_NAMES):
            getattr(modules, WITH_NAMES)[hooks.key] = True
    except BaseException:
        hooks.take_off()
        raise
    return hooks


def are_walked() -> bool:
    """Whether torch may be walking its tables just now, so that none may be put on or taken off.

    It walks copies of them, but for one case: a module's call raised, and a hook of the script's is called all the same.
    """
    from torch.nn.modules import module as modules

    if not any(key not in _ours for key in getattr(modules, ALWAYS, ())):
        return False
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_call_impl" and frame.f_code.co_filename == modules.__file__:
            return True
        frame = frame.f_back
    return False


def _without_ours(modules: Any) -> Any:
    def _has_any_global_hook() -> Any:
        try:
            return any(key not in _ours for kind in KINDS for key in getattr(modules, "_global_" + kind))
        except Exception as error:
            fault("module_hooks.asked", error)
            return False  # the original would tell of ours, and the script mostly has none

    return dress(_has_any_global_hook, getattr(modules, ASKED))
