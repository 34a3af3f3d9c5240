"""A root's forward and backward pass in CUDA graphs, without a compiler: the same kernels, launched at once.

What `compile` cannot capture (an LSTM) or takes a minute for is recorded in a few milliseconds. A replay lets nothing happen
that the script's Python would have done, so only passes that do the same at every call are recorded (`constancy`), and before
each replay it is checked that weights, shapes, flags and numbers are those that were recorded. Everything else runs plain.
"""

from __future__ import annotations

import sys
from typing import Any

from _flatout_agent.knobs.graphs.call_layout import Returned, put_together, taken_apart
from _flatout_agent.knobs.graphs.evaluation_graphs import EvaluationGraphs
from _flatout_agent.knobs.graphs.graph_for_shape import Variant, leaves
from _flatout_agent.knobs.graphs.graph_guards import Attributes
from _flatout_agent.knobs.graphs.graph_recording import Recorder
from _flatout_agent.knobs.graphs.recordable_calls import RecordableCalls
from _flatout_agent.knobs.knob import EXACT, TOLERANCE, Knob, Outcome, Scene, applied, refused
from _flatout_agent.knobs.module_wrapper import Layer, Outfit, Run
from _flatout_agent.knobs.nested_tensors import tensors_in
from _flatout_agent.knobs.script_source import says_retain_graph

MOST_VARIANTS = 4  # shapes, formats: each holds the memory of its own activations
WATCHED = 1  # the call of a shape that is watched; the next one is recorded
WATCHED_LATER = 3  # the same of further shapes: an epoch's last batch is not worth it
MOST_PLAIN = 0.5  # of a root's calls
LARGEST_OUTPUTS = 64 << 20  # bytes, of several outputs: each is copied, and those without a gradient get one of zeros

STALE = "flatout: backward through a step whose CUDA graph was replayed since: this script cannot run with --compile graphs"


class GraphLayer(RecordableCalls, Layer):
    """Replays where it can, and runs plain where it cannot."""

    rank = 90  # innermost, as what is compiled
    compiles = True

    def __init__(self, torch: Any, recorder: Recorder, attributes: Attributes) -> None:
        super().__init__(torch, recorder, attributes)
        self._replay = replay_function(torch)
        self._variants: dict[Any, Variant] = {}
        self._seen: dict[Any, int] = {}
        self._reached: dict[Any, list[set[int]]] = {}  # the weights that each output trains, of calls that were watched
        self._waiting: Variant | None = None  # for its backward pass
        self._called = False  # in this step
        self.recorded = 0
        self.exact = True  # replays gave the very bits of the plain pass
        self.calls = self.replays = self.again = 0
        self.evaluating = EvaluationGraphs(torch, recorder, attributes)

    def forget(self) -> None:
        self._variants.clear()
        self._seen.clear()
        self._reached.clear()

    def evaluation(self, inner: Run) -> Run:
        return self.evaluating.wrap(inner)

    def stepped(self, *_: Any) -> None:
        self._waiting = None
        self._called = False

    def wrap(self, inner: Run) -> Run:
        def run(module: Any, args: Any, kwargs: Any) -> Any:
            self.calls += 1
            taken = taken_apart(self._torch, args, kwargs) if self.why is None else None
            if taken is None or not self.takes(taken[0]):
                return inner(module, args, kwargs)
            first, self._called = not self._called, True
            tensors, layout = taken
            key = self.key_of(module, tensors, layout)
            if key is None:
                return inner(module, args, kwargs)
            variant = self._variants.get(key)
            if variant is None and len(self._variants) < MOST_VARIANTS:
                seen = self._seen.get(key, 0) + 1
                watched = WATCHED if not self._variants else WATCHED_LATER
                if seen == watched and sys.getprofile() is not None:
                    return inner(module, args, kwargs)  # the script's own: it would be in the way, or we in its
                self._seen[key] = seen
                if seen == watched:
                    return self._watched(key, inner, module, (args, kwargs))
                if seen > watched and first and key in self._reached:
                    variant = self._record(key, inner, module, tensors)
            if variant is None:
                return inner(module, args, kwargs)
            if self._waiting is not None:
                # The memory of its first call in this step is still waited for.
                self.again += 1
                return inner(module, args, kwargs)
            self.replays += 1
            self._waiting = variant
            variant.given = tensors
            return variant.returned.with_tensors(self._replay(self, variant, *variant.wanted))

        return run

    def _watched(self, key: Any, inner: Run, module: Any, call: tuple[Any, Any]) -> Any:
        out = self.watched(inner, module, call)
        holdings = self._holdings
        assert holdings is not None
        outs = [tensor for tensor in tensors_in(self._torch, out) if tensor.requires_grad]
        if self.why is not None:
            return out
        if not outs or any(tensor.is_leaf for tensor in outs):
            self.why = refused("no-output-to-train-on")
        elif not leaves(outs) <= {id(weight) for weight in holdings.wanted()}:
            self.why = refused("trains-more-than-itself")
        elif sum(map(_bytes_of, outs)) > LARGEST_OUTPUTS and len(outs) > 1:
            self.why = refused("large-outputs", megabytes=sum(map(_bytes_of, outs)) >> 20)
        else:
            self._reached[key] = [leaves([tensor]) for tensor in outs]
        return out

    def _record(self, key: Any, inner: Run, module: Any, inputs: list[Any]) -> Variant | None:
        """Leaves random state, weights, batch statistics and gradients as they were."""
        torch, holdings, layout = self._torch, self._holdings, key[0]
        assert holdings is not None
        before = self.kept_state(module)
        variant: Variant | None = None

        def run(given: list[Any]) -> list[Any]:
            assert variant is not None
            returned = variant.returned = Returned(torch, inner(module, *put_together(layout, given)))
            variant.differentiable = [tensor.requires_grad for tensor in returned.tensors]
            return returned.tensors

        try:
            variant = Variant(torch, self._recorder, run, module, holdings)
            variant.reached = self._reached[key]
            self.why = variant.record(inputs, before)
        except Exception as error:
            self.why = self.failed(error, before)
        finally:
            before.restore()
        if self.why is not None or variant is None:
            return None
        self.recorded += 1
        self.exact = self.exact and variant.exact
        self._variants[key] = variant
        return variant

    def backward(self, variant: Variant, number: int, gradients: Any) -> list[Any]:
        if variant.number != number:
            raise RuntimeError(STALE)
        if self._waiting is variant:
            self._waiting = None
        return variant.backward(gradients)


def replay_function(torch: Any) -> Any:
    """The node of autograd's that a replay is: its inputs are the weights."""

    class Replay(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, layer: GraphLayer, variant: Variant, *wanted: Any) -> Any:
            ctx.layer, ctx.variant = layer, variant
            ctx.set_materialize_grads(False)
            outs = variant.forward()
            ctx.mark_non_differentiable(*(out for out, own in zip(outs, variant.differentiable) if not own))  # noqa: B905
            ctx.number = variant.number
            return outs

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, *gradients: Any) -> Any:
            own = [each for each, trained in zip(gradients, ctx.variant.differentiable) if trained]  # noqa: B905
            return (None, None, *ctx.layer.backward(ctx.variant, ctx.number, own))

    return Replay.apply


class Graphs(Knob):
    """The value `graphs` of the knob `compile`."""

    name = "compile"
    recorder = Recorder

    def __init__(self) -> None:
        self._attributes: Attributes | None = None
        self._worn: list[tuple[Outfit, GraphLayer]] = []
        self._handles: list[Any] = []

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        torch = scene.torch
        if scene.beside.get("checkpointing") not in (None, "off"):
            return refused("checkpointing-is-on")
        if scene.graph_kept_seen or says_retain_graph():
            return refused("graph-is-kept")
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return refused("several-processes")
        self._attributes = Attributes(torch)
        recorder = self.recorder(torch)
        for root in scene.roots:
            outfit, layer = scene.wardrobe.outfit(root), GraphLayer(torch, recorder, self._attributes)
            self._worn.append((outfit, layer))
            # Of a GAN's two optimizers one steps while what the other one trains still waits for its backward pass.
            own = [optimizer for optimizer in scene.optimizers if trains(optimizer, root)]
            self._handles += [optimizer.register_step_post_hook(layer.stepped) for optimizer in own or scene.optimizers]
            outfit.wear(layer)
        return applied(mode="graphs", roots=len(self._worn), cuda_graphs=True)

    def take_off(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        for outfit, layer in self._worn:
            outfit.drop(layer)
        if self._attributes is not None:
            self._attributes.take_off()

    def stays_on(self) -> None:
        for _, layer in self._worn:
            layer.calls = layer.replays = layer.again = 0

    def proof(self) -> Outcome:
        layers = [layer for _, layer in self._worn]
        for layer in layers:
            if layer.fault:
                return refused("raised", error=layer.fault)
            if layer.why is not None:
                return layer.why
        calls, replays = sum(layer.calls for layer in layers), sum(layer.replays for layer in layers)
        again = sum(layer.again for layer in layers)
        if not calls:
            return refused("not-called-yet")
        if calls - replays > MOST_PLAIN * calls:
            code = "called-again-in-a-step" if again > MOST_PLAIN * calls else "no-cuda-graph-recorded"
            return refused(code, calls=calls, replays=replays, again=again)
        exact = all(layer.exact for layer in layers)
        recorded = sum(layer.recorded for layer in layers)
        evaluations = sum(layer.evaluating.replays for layer in layers)
        details = {"calls": calls, "replays": replays, "cuda_graphs": 2 * recorded, "again": again, "exact": exact}
        return applied("", **details, **({"evaluations": evaluations} if evaluations else {}))

    def numerics(self, scene: Scene) -> str:
        return EXACT if self._worn and all(_is_exact(layer) for _, layer in self._worn) else TOLERANCE


def trains(optimizer: Any, root: Any) -> bool:
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return any(id(parameter) in held for parameter in root.parameters())


def _bytes_of(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _is_exact(layer: GraphLayer) -> bool:
    return layer.exact and layer.recorded > 0 and layer.why is None and not layer.fault
