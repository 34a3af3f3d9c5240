"""torch.compile of a root's own forward, counted with Dynamo's counters, safe with CUDA graphs.

`base.forward` is compiled, not the call: compiling the call of a container captures nothing and says nothing. So a root
with hooks of its own, or with a `forward` set on the instance, is left alone: the compiled function would bypass them.
"""

from __future__ import annotations

import shutil
import sys
from typing import Any

from _flatout_agent.knobs.graphs.evaluation_graphs import EvaluationGraphs
from _flatout_agent.knobs.graphs.graph_guards import Attributes
from _flatout_agent.knobs.graphs.graph_recording import Recorder
from _flatout_agent.knobs.graphs.training_graphs import Graphs
from _flatout_agent.knobs.kept_compilations import Key, Tally
from _flatout_agent.knobs.knob import Knob, Outcome, Scene, already, applied, refused
from _flatout_agent.knobs.loader.iterator_handover import is_profiling
from _flatout_agent.knobs.module_wrapper import Layer, Outfit, Run
from _flatout_agent.knobs.nested_tensors import changed_tensors
from _flatout_agent.knobs.script_source import says_create_graph

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
WITH_GRAPHS = ("reduce-overhead", "max-autotune")
GRAPHS = "graphs"  # nothing is compiled

# Dynamo gives up silently after 8 variants of a function; a trial must see what they cost instead.
LIMITS = {
    "recompile_limit": 64,
    "cache_size_limit": 64,
    "accumulated_recompile_limit": 512,
    "accumulated_cache_size_limit": 512,
}

MOST_AGAIN = 0.1  # of a root's calls: what runs plain beside the CUDA graph


class CompileLayer(Layer):
    """The compiled forward in place of the plain one."""

    rank = 90  # innermost
    compiles = True

    def __init__(self, torch: Any, compiled: Any, steps: _Steps | None, evaluating: EvaluationGraphs | None = None) -> None:
        """`steps`: with CUDA graphs; `evaluating`: these for validation, which is not compiled: its bits stay as they are."""
        self._torch = torch
        self._compiled = compiled
        self._steps = steps
        self._evaluating = evaluating
        self.calls = 0
        self.bypassed = 0  # calls that came with hooks, which the compiled function would not run
        self.postponed = 0  # calls that ran plain while the script's own profiler recorded
        self.again = 0  # calls that ran plain, because a CUDA graph of this step was still waiting for its backward pass

    @property
    def evaluations(self) -> int:
        """Calls in validation that a CUDA graph answered."""
        return self._evaluating.replays if self._evaluating is not None else 0

    def evaluation(self, inner: Run) -> Run | None:
        return self._evaluating.wrap(inner) if self._evaluating is not None else None

    def wrap(self, inner: Run) -> Run:
        torch, compiled, steps = self._torch, self._compiled, self._steps
        wants_gradients = torch.is_grad_enabled

        def run(module: Any, args: Any, kwargs: Any) -> Any:
            if has_hooks(module):
                self.bypassed += 1
                return inner(module, args, kwargs)
            if not self.calls and is_profiling(torch):
                # What Dynamo compiles while stacks are recorded leaves torch's profiler with names that are gone: it raises.
                self.postponed += 1
                return inner(module, args, kwargs)
            self.calls += 1
            if steps is None:
                return compiled(module, *args, **kwargs)
            if wants_gradients() and not steps.is_first(self):
                # Called twice before its backward pass, torch 2.11's CUDA graphs were seen to give wrong gradients. Where a
                # backward pass lies between (accumulation) they were right, but that is not known here.
                self.again += 1
                return inner(module, args, kwargs)
            steps.mark()
            # What a CUDA graph returns lies in its own memory, and the next replay writes there.
            return changed_tensors(torch, compiled(module, *args, **kwargs), torch.clone)

        return run


class _Steps:
    """Tells CUDA graphs where a step begins: at the first call after an optimizer's step, not at every call."""

    def __init__(self, torch: Any) -> None:
        self._begin = torch.compiler.cudagraph_mark_step_begin
        self._fresh = True
        self._called: set[int] = set()

    def stepped(self, *_: Any) -> None:
        self._fresh = True
        self._called.clear()

    def is_first(self, layer: CompileLayer) -> bool:
        """Whether it is the layer's first call of this step."""
        if id(layer) in self._called:
            return False
        self._called.add(id(layer))
        return True

    def mark(self) -> None:
        if self._fresh:
            self._fresh = False
            self._begin()


class Compile(Knob):
    name = "compile"
    backend = "inductor"

    def __init__(self) -> None:
        self._torch: Any = None
        self._worn: list[tuple[Outfit, CompileLayer]] = []
        self._limits: dict[str, Any] = {}
        self._before: Tally | None = None
        self._key: Key = ()
        self._handles: list[Any] = []
        self._attributes: Attributes | None = None
        self._scene: Scene | None = None
        self._wants_cuda_graphs = False
        self._most_graphs = 0

    @classmethod
    def meant_by(cls, value: Any) -> Knob:
        return Recorded() if value == GRAPHS else cls()

    @classmethod
    def foretold(cls, scene: Scene, value: Any) -> Outcome | None:
        if value == GRAPHS:
            return Recorded.foretold(scene, value)
        why = obstacle(scene)
        return _no_compiler(scene, cls.backend) if why is None else why

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        self._torch = torch = scene.torch
        mode = "default" if value is True or value == "on" else value
        if mode not in MODES:
            return refused("unknown-value", value=str(value))
        with_graphs = mode in WITH_GRAPHS and scene.has_cuda()
        outcome = self.foretold(scene, mode)
        if outcome is None and with_graphs and len(scene.optimizers) > 1:
            # One steps while what the other waits for is still in the graphs' memory.
            outcome = refused("several-optimizers", count=len(scene.optimizers))
        if outcome is not None:
            return outcome
        self._scene = scene
        steps = None
        if with_graphs:
            steps = _Steps(torch)
            self._wants_cuda_graphs = True
            self._handles = [optimizer.register_step_post_hook(steps.stepped) for optimizer in scene.optimizers]
        self._raise_limits()
        self._key = scene.compilations.begin(torch, mode, scene.beside)
        self._before = Tally()
        for root in scene.roots:
            outfit = scene.wardrobe.outfit(root)
            options = {"mode": mode} if self.backend == "inductor" else {}
            compiled = scene.compilations.function(torch, outfit.base.forward, self.backend, options)
            layer = CompileLayer(torch, compiled, steps, self._evaluating(scene) if with_graphs else None)
            self._worn.append((outfit, layer))
            outfit.wear(layer)
        return applied(mode=mode, roots=len(self._worn), cuda_graphs=steps is not None)

    def _evaluating(self, scene: Scene) -> EvaluationGraphs | None:
        torch = scene.torch
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return None  # a collective of another process may be in what is recorded
        if self._attributes is None:
            self._attributes = Attributes(torch)
        return EvaluationGraphs(torch, Recorder(torch), self._attributes)

    def _raise_limits(self) -> None:
        import torch._dynamo.config as config

        for name, least in LIMITS.items():
            current = getattr(config, name, None)
            if isinstance(current, int) and current < least:
                self._limits[name] = current
                setattr(config, name, least)

    def take_off(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        for outfit, layer in self._worn:
            outfit.drop(layer)
        if self._attributes is not None:
            self._attributes.take_off()
        if self._limits:
            import torch._dynamo.config as config

            for name, value in self._limits.items():
                setattr(config, name, value)
        # What a script compiled itself would be lost with ours.
        if self._worn and self._scene is not None and not self._scene.compiled_seen:
            sound = not any(layer.fault for _, layer in self._worn)
            self._scene.compilations.leave(self._torch, self._key, self._counted(), sound)

    def _counted(self) -> dict[str, int]:
        """Of this variant, before it was taken off the last time and since."""
        assert self._before is not None
        assert self._scene is not None
        known = self._scene.compilations.counted(self._key)
        since = Tally().since(self._before, known=bool(known))
        return {name: value + known.get(name, 0) for name, value in since.items()}

    def proof(self) -> Outcome:
        layers = [layer for _, layer in self._worn]
        faults = [layer.fault for layer in layers if layer.fault]
        if faults:
            return refused("raised", error=faults[0])
        calls = sum(layer.calls for layer in layers)
        if not calls:
            if any(layer.postponed for layer in layers):
                return refused("script-profiles")
            bypassed = sum(layer.bypassed for layer in layers)
            return refused("hooks-on-root" if bypassed else "not-called-yet")
        seen = self._counted()
        if not seen["graphs"]:
            return refused("nothing-captured", **seen)
        if self._wants_cuda_graphs:
            # The most at any time: torch takes them down before the script's process is gone.
            seen["cuda_graphs"] = self._most_graphs = max(self._most_graphs, recorded_cuda_graphs(self._torch))
            if not seen["cuda_graphs"]:
                return refused("no-cuda-graph-recorded", **seen)
            seen["again"] = sum(layer.again for layer in layers)
            if seen["again"] > MOST_AGAIN * calls:
                return refused("called-again-in-a-step", calls=calls, **seen)
        most = seen.pop("most_variants")
        evaluations = sum(layer.evaluations for layer in layers)
        if evaluations:
            seen["evaluations"] = evaluations
        if seen["limit_hits"] or most >= LIMITS["recompile_limit"]:
            return refused("recompile-limit", **seen)
        return applied("", calls=calls, **seen)


class Recorded(Graphs):
    """The value `graphs`: what stands in the way of compiling a root's forward pass stands in its way, too."""

    @classmethod
    def foretold(cls, scene: Scene, value: Any) -> Outcome | None:
        if not scene.has_cuda():
            return refused("no-cuda-device")
        return already("script-compiles") if scene.compiled_seen else obstacle(scene)

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        why = self.foretold(scene, value)
        return super().put_on(scene, value) if why is None else why


def obstacle(scene: Scene) -> Outcome | None:
    """Why no root's forward pass can be put in place of another one, if none can."""
    if not scene.roots:
        return refused("no-roots-found")
    if any(type(root).__name__ == "OptimizedModule" for root in scene.roots):
        return already("script-compiles")
    # Not only in the first steps: a penalty may come every sixteenth.
    if scene.double_backward_seen or says_create_graph():
        return refused("double-backward")
    reasons = (_root_obstacle(scene, root) for root in scene.roots)
    return next((refused(why[0], **why[1]) for why in reasons if why is not None), None)


def _no_compiler(scene: Scene, backend: str) -> Outcome | None:
    if backend != "inductor":
        return None
    if scene.has_cuda():
        return None if _has_triton() else refused("no-triton")
    return None if any(shutil.which(name) for name in ("g++", "c++", "clang++", "cl")) else refused("no-c++-compiler")


def has_hooks(module: Any) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks)


def recorded_cuda_graphs(torch: Any) -> int:
    """CUDA graphs that stand ready to be replayed on the current card."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None:
        return 0
    manager = trees.get_manager(torch.cuda.current_device(), create_if_none_exists=False)
    return sum(len(nodes) for nodes in manager.roots.values()) if manager is not None else 0


def _root_obstacle(scene: Scene, root: Any) -> tuple[str, dict[str, Any]] | None:
    name = {"module": type(root).__name__}
    if "forward" in vars(root):
        return "forward-set-on-instance", name
    if has_hooks(root):
        return "hooks-on-root", name
    if hasattr(root, "_fsdp_wrapped_module") or "FSDPModule" in {kind.__name__ for kind in type(root).__mro__}:
        return "sharded-module", name
    return scene.wardrobe.obstacle(root)


def _has_triton() -> bool:
    try:
        import torch.utils._triton as triton
    except ImportError:
        return False
    return bool(triton.has_triton())
