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


def put_on(entered: Any, left: Any, named: bool = False) -> Patches:
    """`entered(module, args)` before a call; `left(module, args, output)` after it, also where it raised.

    Where `named`, `left(module, args, kwargs, output)`; not before torch 2.6, and not where the call raised.
    """
    from torch.nn.modules import module as modules

    patches = Patches()
    try:
        before = modules.register_module_forward_pre_hook(entered)
        patches.on_take_off(before.remove)
        after = modules.register_module_forward_hook(left, always_call=True)
        patches.on_take_off(after.remove)
        if named and hasattr(modules, WITH_NAMES):
            getattr(modules, WITH_NAMES)[after.id] = True
            patches.on_take_off(lambda: getattr(modules, WITH_NAMES).pop(after.id, None))
        if hasattr(modules, ASKED):
            patches.put(modules, ASKED, _without_ours(modules, {before.id, after.id}))
    except BaseException:
        patches.take_off()
        raise
    return patches


def _without_ours(modules: Any, ours: set[int]) -> Any:
    original = getattr(modules, ASKED)

    def _has_any_global_hook() -> Any:
        try:
            return any(key not in ours for kind in KINDS for key in getattr(modules, "_global_" + kind))
        except Exception as error:
            fault("module_hooks.asked", error)
            return original()

    return dress(_has_any_global_hook, original)
