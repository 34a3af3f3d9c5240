"""Activation checkpointing of a root's repeated blocks: less memory, each block's forward pass a second time."""

from __future__ import annotations

from typing import Any

from _flatout_agent.knobs.knob import EXACT, Knob, Outcome, Scene, already, applied, refused
from _flatout_agent.knobs.module_wrapper import Layer, Outfit, Run
from _flatout_agent.knobs.script_source import says_checkpointing

LEAST_BLOCKS = 2


class CheckpointLayer(Layer):
    """A block that keeps its inputs alone, and is run again when the backward pass needs the rest."""

    rank = 50

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.calls = 0
        self.runs = 0

    def wrap(self, inner: Run) -> Run:
        from torch.utils.checkpoint import checkpoint

        def once(module: Any, args: Any, kwargs: Any) -> Any:
            self.runs += 1
            return inner(module, args, kwargs)

        def run(module: Any, args: Any, kwargs: Any) -> Any:
            self.calls += 1
            # Tensors must be arguments of their own to be seen; the random state is kept, so dropout is the same.
            return checkpoint(
                lambda *given, **named: once(module, given, named),
                *args,
                use_reentrant=False,
                preserve_rng_state=True,
                **kwargs,
            )

        return run


class Checkpointing(Knob):
    name = "checkpointing"

    def __init__(self) -> None:
        self._worn: list[tuple[Outfit, CheckpointLayer]] = []

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        torch = scene.torch
        if not scene.roots:
            return refused("no-roots-found")
        if says_checkpointing() or any(getattr(m, "is_gradient_checkpointing", False) is True for m in scene.roots):
            return already("script-checkpoints")  # one inside the other would fail in the backward pass
        blocks = [block for root in scene.roots for block in repeated_blocks(torch, root)]
        if not blocks:
            return refused("no-repeated-blocks")
        for block in blocks:
            why = scene.wardrobe.obstacle(block)
            if why is not None:
                return refused(why[0], **why[1])
            counting = next((part for part in block.modules() if _keeps_statistics(torch, part)), None)
            if counting is not None:
                return refused("running-statistics-in-blocks", module=type(counting).__name__)
        for block in blocks:
            outfit, layer = scene.wardrobe.outfit(block), CheckpointLayer(torch)
            self._worn.append((outfit, layer))
            outfit.wear(layer)
        return applied(blocks=len(blocks), kind=type(blocks[0]).__name__)

    def take_off(self) -> None:
        for outfit, layer in self._worn:
            outfit.drop(layer)

    def proof(self) -> Outcome:
        layers = [layer for _, layer in self._worn]
        faults = [layer.fault for layer in layers if layer.fault]
        if faults:
            return refused("raised", error=faults[0])
        calls, runs = sum(layer.calls for layer in layers), sum(layer.runs for layer in layers)
        if not calls:
            return refused("not-called-yet")
        return applied(calls=calls, recomputed=runs - calls) if runs > calls else refused("never-recomputed", calls=calls)

    def numerics(self, scene: Scene) -> str:
        return EXACT


def repeated_blocks(torch: Any, root: Any) -> list[Any]:
    """The longest run of children of one class in a container: a transformer's layers, a stage's residual blocks."""
    best: list[Any] = []
    for module in root.modules():
        if not isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        by_class: dict[Any, list[Any]] = {}
        for child in module.children():
            if any(True for _ in child.children()):  # a single layer is not worth a second run
                by_class.setdefault(child.__class__, []).append(child)
        best = max([best, *by_class.values()], key=len)
    return best if len(best) >= LEAST_BLOCKS else []


def _keeps_statistics(torch: Any, module: Any) -> bool:
    return bool(getattr(module, "track_running_stats", False)) and getattr(module, "running_mean", None) is not None
