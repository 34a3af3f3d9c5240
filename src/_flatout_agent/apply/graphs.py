"""A root's forward and backward pass in CUDA graphs, without a compiler: the same kernels, launched at once.

What `compile` cannot capture (an LSTM) or takes a minute for is recorded in a few milliseconds. A replay lets nothing happen
that the script's Python would have done, so only passes that do the same at every call are recorded (`constancy`), and before
each replay it is checked that weights, shapes, flags and numbers are those that were recorded. Everything else runs plain.
"""

from __future__ import annotations

from typing import Any

from _flatout_agent.apply.constancy import Attributes, Calls, Constant, Draws, doubt, numbers_of, unchanged
from _flatout_agent.apply.dressing import Layer, Outfit, Run
from _flatout_agent.apply.model import EXACT, TOLERANCE, Knob, Outcome, Scene, applied, refused
from _flatout_agent.apply.recording import Recorder, close_enough
from _flatout_agent.apply.roots import is_autocast_enabled
from _flatout_agent.apply.snapshot import Snapshot
from _flatout_agent.apply.sources import says_retain_graph
from _flatout_agent.guard import fault

MOST_VARIANTS = 4  # shapes, formats: each holds the memory of its own activations
MOST_RECORDED = 12  # what is recorded again and again is no gain
WATCHED = 1  # the call of a shape that is watched; the next one is recorded
WATCHED_LATER = 3  # the same of further shapes: an epoch's last batch is not worth it
MOST_PLAIN = 0.5  # of a root's calls
NUDGE = 1.01
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

STALE = (
    "flatout: backward through a step whose CUDA graph was replayed since then: this script cannot run with --compile graphs"
)


class GraphLayer(Layer):
    """Replays where it can, and runs plain where it cannot."""

    rank = 90  # innermost, as what is compiled
    compiles = True

    def __init__(self, torch: Any, recorder: Recorder, attributes: Attributes) -> None:
        self._torch = torch
        self._recorder = recorder
        self._attributes = attributes
        self._replay = replay_function(torch)
        self._variants: dict[Any, _Variant] = {}
        self._seen: dict[Any, int] = {}
        self._state: Any = None  # addresses and flags of what was recorded
        self._version = -1
        self._numbers: list[Any] = []
        self._constants: list[Constant] = []
        self._parts: _Parts | None = None
        self._waiting: _Variant | None = None  # for its backward pass
        self._called = False  # in this step
        self._changed = 0  # times that what was recorded did not hold any more
        self.recorded = 0
        self.exact = True  # replays gave the very bits of the plain pass
        self.why: Outcome | None = None  # it will not be recorded
        self.calls = self.replays = self.again = 0

    def stepped(self, *_: Any) -> None:
        self._waiting = None
        self._called = False

    def wrap(self, inner: Run) -> Run:
        def run(module: Any, args: Any, kwargs: Any) -> Any:
            self.calls += 1
            first, self._called = not self._called, True
            if self.why is not None:
                return inner(module, args, kwargs)
            inputs = self._inputs(args, kwargs)
            key = self._key(module, inputs) if inputs is not None else None
            if inputs is None or key is None:
                return inner(module, args, kwargs)
            variant = self._variants.get(key)
            if variant is None and len(self._variants) < MOST_VARIANTS:
                seen = self._seen[key] = self._seen.get(key, 0) + 1
                watched = WATCHED if not self._variants else WATCHED_LATER
                if seen == watched:
                    return self._watched(inner, module, args)
                if seen > watched and first:
                    variant = self._record(key, inner, module, inputs)
            if variant is None:
                return inner(module, args, kwargs)
            if self._waiting is not None:
                # The memory of its first call in this step is still waited for.
                self.again += 1
                return inner(module, args, kwargs)
            self.replays += 1
            self._waiting = variant
            variant.given = inputs
            return self._replay(self, variant, *variant.wanted)

        return run

    def _inputs(self, args: Any, kwargs: Any) -> list[Any] | None:
        if kwargs:
            return None
        for part in args:
            if type(part) is not self._torch.Tensor or part.device.type != self._recorder.device_type or part.requires_grad:
                return None
        return list(args)

    def _key(self, module: Any, inputs: list[Any]) -> Any:
        """By what recordings are told apart; None where nothing may be replayed. What no longer holds is thrown away."""
        if self._parts is None:
            self._parts = _Parts(self._torch, module)
        if self._parts.hooked():
            return None
        state = self._parts.state()
        if state != self._state or self._numbers_changed(module) or not unchanged(self._constants):
            self._variants.clear()
            self._seen.clear()
            self._constants.clear()
            self._changed += 1
            if self._changed > MOST_RECORDED:
                self.why = refused("changes-too-often", changes=self._changed - 1)
                return None
            self._parts = _Parts(self._torch, module)
            self._state = self._parts.state()
            self._version, self._numbers = self._attributes.version, numbers_of(module)
        return (*((part.shape, part.stride(), part.dtype, part.device.index) for part in inputs), *self._surroundings())

    def _watched(self, inner: Run, module: Any, args: Any) -> Any:
        """A call of the script's own: whether one like it may be recorded. No call is made only to look at it: that would be a
        step too many for whatever counts its calls."""
        torch, calls = self._torch, Calls()
        draws = Draws(torch, self._recorder.device_type)
        out = calls.watch(lambda: inner(module, args, {}))
        if draws.seen():
            self.why = refused("host-draws")
        elif type(out) is not torch.Tensor or not out.requires_grad:
            self.why = refused("several-outputs", kind=type(out).__name__)
        else:
            found, relied = doubt(calls, module, torch, self._recorder.device_type)
            self._constants = [*self._constants, *relied]
            if found:
                self.why = refused("python-may-differ", where=found)
        return out

    def _numbers_changed(self, module: Any) -> bool:
        if self._version == self._attributes.version:
            return False
        self._version = self._attributes.version
        before, self._numbers = self._numbers, numbers_of(module)
        return before != self._numbers

    def _surroundings(self) -> tuple[Any, ...]:
        torch = self._torch
        kind = self._recorder.device_type
        low = torch.get_autocast_dtype(kind) if is_autocast_enabled(torch, kind) else None
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        try:
            formats = (matmul.fp32_precision, cudnn.conv.fp32_precision)
        except AttributeError:  # before torch 2.9; there, reading the old flags raises once the new ones were set
            formats = (matmul.allow_tf32, cudnn.allow_tf32)
        return (low, *formats, cudnn.benchmark, cudnn.deterministic)

    def _record(self, key: Any, inner: Run, module: Any, inputs: list[Any]) -> _Variant | None:
        """Leaves random state, batch statistics and gradients as they were."""
        self.recorded += 1
        torch = self._torch
        assert self._parts is not None
        wanted = self._parts.wanted()
        before = Snapshot(torch, module, self._parts.devices())
        try:
            run = _uncached(torch, self._recorder.device_type, inner, module)
            variant = _Variant(torch, self._recorder, run, inputs, wanted)
            self.why = variant.record(before, module)
        except Exception as error:
            self.why = refused("cannot-be-recorded", error=f"{type(error).__name__}: {error}"[:300])
            fault("apply.graphs", error)
            self._mend(before)
        finally:
            before.restore()
        if self.why is not None:
            return None
        self.exact = self.exact and variant.exact
        self._variants[key] = variant
        # Watching and recording may themselves have been what changed.
        self._version, self._numbers = self._attributes.version, numbers_of(module)
        return variant

    def _mend(self, before: Snapshot) -> None:
        try:
            self._recorder.mend(before.cuda_states)
        except Exception as error:
            fault("apply.graphs.mend", error)

    def backward(self, variant: _Variant, number: int, gradient: Any) -> list[Any]:
        if variant.number != number:
            raise RuntimeError(STALE)
        if self._waiting is variant:
            self._waiting = None
        recording = variant.recording
        recording.gradient.copy_(gradient)
        recording.backward()
        # Copies, all in a few launches: a script may keep its gradients, or add to them.
        copies = iter(self._torch._foreach_mul(variant.gradients, 1))
        return [None if part is None else next(copies) for part in recording.gradients]


class _Variant:
    """A recording for one shape and format of the inputs."""

    def __init__(self, torch: Any, recorder: Recorder, run: Any, inputs: list[Any], wanted: list[Any]) -> None:
        self._torch = torch
        self._recorder = recorder
        self._run = run
        self.wanted = wanted
        self.given: list[Any] = inputs
        self.number = 0
        self.exact = False
        self.recording: Any = None
        self.gradients: list[Any] = []

    def record(self, before: Snapshot, module: Any) -> Outcome | None:
        """Records, and compares a replay with the plain pass, on other inputs and weights than it was recorded with: so nothing
        can be right only because it has stayed the same."""
        torch = self._torch
        with self._recorder.no_waiting():
            out = self._run(self.given)
            torch.autograd.grad(out, self.wanted, torch.ones_like(out), allow_unused=True)
        del out
        recording = self.recording = self._recorder.record(self._run, self.given, self.wanted, module)
        self.gradients = [part for part in recording.gradients if part is not None]
        others = [part.roll(1, 0) if part.dim() else part for part in self.given]
        weights = [weight.detach().clone() for weight in self.wanted]
        try:
            for weight in self.wanted:
                weight.data.mul_(NUDGE)
            before.restore()
            out = self._run(others)
            plain = [out, *torch.autograd.grad(out, self.wanted, torch.ones_like(out), allow_unused=True)]
            before.restore()
            for place, other in zip(recording.inputs, others):  # noqa: B905
                place.copy_(other)
            recording.forward()
            recording.gradient.fill_(1)
            recording.backward()
        finally:
            for weight, own in zip(self.wanted, weights):  # noqa: B905
                weight.data.copy_(own)
        pairs = list(zip(plain, (recording.out, *recording.gradients)))  # noqa: B905
        self.exact = all(one is not None and torch.equal(one, seen) for one, seen in pairs if seen is not None)
        return None if all(close_enough(one, seen) for one, seen in pairs) else refused("replay-differs")

    def forward(self) -> Any:
        self.number += 1
        recording = self.recording
        for place, given in zip(recording.inputs, self.given):  # noqa: B905
            place.copy_(given, non_blocking=True)
        self.given = []
        recording.forward()
        return recording.out.clone()


class _Parts:
    """The tensors and hooks of a module and all its parts, to be looked at before every replay."""

    def __init__(self, torch: Any, module: Any) -> None:
        from torch.nn.modules import module as modules

        parts = list(module.modules())
        self._weights = [part._parameters for part in parts]
        self._buffers = [part._buffers for part in parts]
        self._children = [part._modules for part in parts]
        own = [getattr(part, name) for part in parts for name in HOOKS]
        self._hooks = [*own, modules._global_forward_hooks, modules._global_forward_pre_hooks, modules._global_backward_hooks]

    def hooked(self) -> bool:
        return any(self._hooks)

    def state(self) -> tuple[Any, ...]:
        weights = [
            (each.data_ptr(), each.requires_grad) for place in self._weights for each in place.values() if each is not None
        ]
        buffers = [each.data_ptr() for place in self._buffers for each in place.values() if each is not None]
        return weights, buffers, list(map(len, self._children))

    def wanted(self) -> list[Any]:
        found = {
            id(each): each for place in self._weights for each in place.values() if each is not None and each.requires_grad
        }
        return list(found.values())

    def devices(self) -> list[int]:
        tensors = [each for place in (*self._weights, *self._buffers) for each in place.values() if each is not None]
        return sorted({each.device.index for each in tensors if each.is_cuda})


def replay_function(torch: Any) -> Any:
    """The node of autograd's that a replay is: its inputs are the weights."""

    class Replay(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, layer: GraphLayer, variant: _Variant, *wanted: Any) -> Any:
            ctx.layer, ctx.variant = layer, variant
            out = variant.forward()
            ctx.number = variant.number
            return out

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, gradient: Any) -> Any:
            return (None, None, *ctx.layer.backward(ctx.variant, ctx.number, gradient))

    return Replay.apply


def _uncached(torch: Any, kind: str, inner: Run, module: Any) -> Any:
    """Autocast keeps the weights that it has cast for as long as it is on: a recording would replay old ones."""

    def run(inputs: list[Any]) -> Any:
        if not is_autocast_enabled(torch, kind):
            return inner(module, inputs, {})
        with torch.autocast(kind, torch.get_autocast_dtype(kind), cache_enabled=False):
            return inner(module, inputs, {})

    return run


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
        if len(scene.optimizers) > 1:
            return refused("several-optimizers", count=len(scene.optimizers))
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
            self._handles += [optimizer.register_step_post_hook(layer.stepped) for optimizer in scene.optimizers]
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
        return applied("", calls=calls, replays=replays, cuda_graphs=2 * recorded, again=again, exact=exact)

    def numerics(self, scene: Scene) -> str:
        return EXACT if self._worn and all(layer.exact and layer.recorded for _, layer in self._worn) else TOLERANCE
