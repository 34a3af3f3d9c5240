"""One forward and one backward pass recorded as CUDA graphs. The only place that records."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Callable, Iterator, List
from weakref import ref

WARM = 2  # passes before: libraries choose their kernels and take their memory there

Pass = Callable[[list[Any]], List[Any]]  # inputs -> the tensors that are returned


class Recording:
    """Replays on fixed memory: inputs are copied in, what comes out is copied by whoever keeps it."""

    def __init__(self, torch: Any, run: Pass, inputs: list[Any], wanted: list[Any], module: Any) -> None:
        self.inputs = [tensor.detach().clone() for tensor in inputs]
        with _aside(torch):
            for _ in range(WARM):
                both_passes(torch, run, self.inputs, wanted, module)
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with twins_of(torch, module) as twins:
            # Other threads may ask for memory meanwhile: a loader's pins batches.
            with torch.cuda.graph(self._forward, capture_error_mode="thread_local"):
                outs = run(self.inputs)
            through = trained(outs)
            self.given = [torch.empty_like(out) for out in through]  # the outputs' gradients
            with torch.cuda.graph(self._backward, pool=self._forward.pool(), capture_error_mode="thread_local"):
                # What was kept for it stays: else its memory would be used again, and a second backward pass be wrong.
                gradients = gradients_of(torch, through, [twins[id(weight)] for weight in wanted], self.given, keep=True)
        self.outs = [out.detach() for out in outs]
        self.gradients = [None if gradient is None else gradient.detach() for gradient in gradients]

    def forward(self) -> None:
        self._forward.replay()

    def backward(self) -> None:
        self._backward.replay()


class ForwardRecording:
    """One forward pass, without gradients."""

    def __init__(self, torch: Any, run: Pass, inputs: list[Any], module: Any) -> None:
        self.inputs = [tensor.detach().clone() for tensor in inputs]
        with _aside(torch):
            for _ in range(WARM):
                with twins_of(torch, module):
                    run(self.inputs)
        self._graph = torch.cuda.CUDAGraph()
        # Of twins autocast has cast nothing yet: what it casts is part of the recording, and sees the weights as they are.
        with twins_of(torch, module), torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            outs = run(self.inputs)
        self.outs = [out.detach() for out in outs]

    def forward(self) -> None:
        self._graph.replay()


def trained(outs: list[Any]) -> list[Any]:
    """Those that can get a gradient."""
    return [out for out in outs if out.requires_grad]


def both_passes(torch: Any, run: Pass, inputs: list[Any], wanted: list[Any], module: Any) -> list[Any]:
    """What comes out, and the gradients for ones; nobody's hooks are called, and no weight hears of it."""
    with twins_of(torch, module) as twins:
        outs = run(inputs)
        through = trained(outs)
        ones = [torch.ones_like(out) for out in through]
        gradients = gradients_of(torch, through, [twins[id(weight)] for weight in wanted], ones)
    return [*(out.detach() for out in outs), *gradients]


def gradients_of(torch: Any, outs: list[Any], weights: list[Any], gradients: list[Any], keep: bool = False) -> Any:
    """As a script has it: its backward pass is outside autocast."""
    with torch.autocast(outs[0].device.type, enabled=False):
        return torch.autograd.grad(outs, weights, gradients, allow_unused=True, retain_graph=keep)


@contextlib.contextmanager
def twins_of(torch: Any, module: Any) -> Iterator[dict[int, Any]]:
    """Other names for the same memory in place of the weights. Autograd ties a weight to the stream that it was used on first,
    and the graph of the script's last step is often still there: a recording that waits for that stream fails.

    Recurrent layers read a list of their weights, and copy all of them where these seem to be others (`_flat_weight_refs`)."""
    twins: dict[int, Any] = {}
    places: list[tuple[Any, Any, Any, Any]] = []
    for part in module.modules():
        flat, refs = vars(part).get("_flat_weights") or [], vars(part).get("_flat_weight_refs") or []
        named = [(part._parameters, name, weight) for name, weight in part._parameters.items()]
        for place, name, weight in [*named, *((flat, number, weight) for number, weight in enumerate(flat))]:
            if weight is not None and weight.requires_grad:
                twins.setdefault(id(weight), torch.nn.Parameter(weight.detach()))
                places.append((place, name, weight, twins[id(weight)]))
        for number, known in enumerate(refs):
            weight = known() if known is not None else None
            if weight is not None and id(weight) in twins:
                places.append((refs, number, known, ref(twins[id(weight)])))
    try:
        for place, name, _, twin in places:
            place[name] = twin
        yield twins
    finally:
        # Autocast holds what it has cast; of twins nobody will ask again.
        torch.clear_autocast_cache()
        for place, name, own, _ in places:
            place[name] = own


@contextlib.contextmanager
def _aside(torch: Any) -> Iterator[None]:
    """On a stream of its own, as recording wants it."""
    now, aside = torch.cuda.current_stream(), torch.cuda.Stream()
    aside.wait_stream(now)
    with torch.cuda.stream(aside):
        yield
    now.wait_stream(aside)


class Recorder:
    """What recording needs of the device."""

    device_type = "cuda"

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def home(self) -> Any:
        """The one device that it records on."""
        return self._torch.device("cuda", self._torch.cuda.current_device())

    def is_busy(self) -> bool:
        """The script records something itself."""
        return bool(self._torch.cuda.is_current_stream_capturing())

    def record(self, run: Pass, inputs: list[Any], wanted: list[Any], module: Any) -> Recording:
        now = self._torch.cuda.current_stream()
        try:
            return Recording(self._torch, run, inputs, wanted, module)
        finally:
            self._torch.cuda.set_stream(now)  # torch does not turn back to it where its recording fails

    def record_forward(self, run: Pass, inputs: list[Any], module: Any) -> ForwardRecording:
        now = self._torch.cuda.current_stream()
        try:
            return ForwardRecording(self._torch, run, inputs, module)
        finally:
            self._torch.cuda.set_stream(now)

    @contextlib.contextmanager
    def no_waiting(self) -> Iterator[None]:
        """What waits for the device raises: it could not be recorded, and an attempt leaves the generator unusable."""
        cuda = self._torch.cuda
        before = cuda.get_sync_debug_mode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls it a prototype
            cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            cuda.set_sync_debug_mode(before)

    def mend(self, states: list[Any]) -> None:
        """A recording that failed leaves the generator believing that it goes on: it gets another state of the same numbers."""
        torch = self._torch
        torch.cuda.synchronize()
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        if states and hasattr(generator, "graphsafe_set_state"):
            fresh = torch.Generator(device=generator.device)
            fresh.set_state(states[0])
            generator.graphsafe_set_state(fresh.graphsafe_get_state())
