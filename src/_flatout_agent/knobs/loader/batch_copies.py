"""How a batch gets to the device: without blocking, or ahead of its use on a stream of its own.

The script goes on holding its batch on the host and calling `.to(device)` on it. Only tensors that came out of its loader in
pinned memory are touched: those are fresh with every batch, while a buffer of the script's own may be written again while
a copy is still under way. `Mover.wrap` is what the observer of transfers can call instead of the patch below.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.core.patches import Patches
from _flatout_agent.knobs.nested_tensors import tensors_in

PREFETCH = "device_prefetch"
MOST_AWAITED = 8  # batches that were copied ahead and never asked for: then nobody moves them
EVENTS = 4  # more than batches on their way; one that comes round again only stands for a later copy of the same stream


class Mover:
    """The tensors of the batch in the script's hands, and where it was seen to move each."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._patches: Patches | None = None
        self._stream: Any = None
        self._loose: dict[int, Any] = {}  # id of a tensor of the batch -> (weak reference, place in the batch)
        self._targets: dict[int, Any] = {}  # place in the batch -> the device that the script moves it to
        self._ahead: dict[int, Any] = {}  # id of a tensor -> (weak reference, version, its copy, device, event of its end)
        self._events: list[Any] = []
        self._turn = 0
        self.users: set[str] = set()  # the knobs that are on
        self.made_non_blocking = 0
        self.own_non_blocking = 0  # copies that the script itself does not wait for
        self.copied_ahead = 0
        self.used_ahead = 0
        self.sent = 0  # batches whose copies began before the script asked for them

    @property
    def sends(self) -> bool:
        """Whether a batch may be sent before the script has it: where the last one was seen to be moved."""
        return PREFETCH in self.users and bool(self._targets) and bool(self._loose)

    def join(self, name: str) -> None:
        from _flatout_agent.timeline.hooks.device_copies import MethodTwin  # equal to the original in sets of methods

        self.users.add(name)
        if self._patches is None:
            self._patches = Patches()
            for method in ("to", "cuda"):
                original = getattr(self._torch.Tensor, method)
                self._patches.put(self._torch.Tensor, method, MethodTwin(original, self.wrap(original, method)))

    def lift(self) -> None:
        """While Dynamo compiles: it would break its graph at our method. Ours is over the observer's, so it goes first."""
        if self._patches is not None:
            self._patches.lift()

    def put_back(self) -> None:
        if self._patches is not None:
            self._patches.put_over()  # the observer that was underneath may rest now

    def leave(self, name: str) -> None:
        self.users.discard(name)
        if PREFETCH not in self.users:
            self._ahead.clear()
            self._events.clear()
            self._stream = None
        if not self.users and self._patches is not None:
            self._patches.take_off()
            self._patches = None
            self._loose.clear()
            self._targets.clear()

    def arrived(self, batch: Any) -> None:
        """A batch is about to be given to the script."""
        if not self.users:
            return
        try:
            tensors = tensors_in(self._torch, batch)
            self._loose = pinned(tensors)
            if PREFETCH in self.users:
                self._copy_ahead(tensors, self._loose)
        except Exception as error:
            fault("moving.arrived", error)

    def send(self, batch: Any) -> None:
        """A batch that the script will ask for: on its way while the present one is worked on."""
        try:
            tensors = tensors_in(self._torch, batch)
            self.sent += self._copy_ahead(tensors, pinned(tensors))
        except Exception as error:
            fault("moving.send", error)

    def wrap(self, original: Any, method: str) -> Any:
        """`Tensor.to` or `.cuda` with what the knobs that are on make of it."""

        def move(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            loose = self._loose.get(id(tensor))
            if loose is None or loose[0]() is not tensor:
                return original(tensor, *args, **kwargs)
            try:
                device = self._target(method, args, kwargs)
                ready = None if device is None else self._ready(tensor, loose[1], device)
            except Exception as error:
                fault("moving.move", error)
                return original(tensor, *args, **kwargs)
            if ready is not None:
                return ready
            if device is not None and "non_blocking" in self.users:
                if kwargs.get("non_blocking"):
                    self.own_non_blocking += 1
                else:
                    self.made_non_blocking += 1
                    kwargs = {**kwargs, "non_blocking": True}
            return original(tensor, *args, **kwargs)

        return move

    def _target(self, method: str, args: Any, kwargs: Any) -> Any:
        """The card that this call copies to and does nothing else; None for anything more involved."""
        if len(args) > 1 or set(kwargs) - {"device", "non_blocking"}:
            return None
        given = args[0] if args else kwargs.get("device")
        if given is None and method == "cuda":
            given = "cuda"
        if isinstance(given, int):
            given = f"cuda:{given}"
        if not isinstance(given, (str, self._torch.device)):
            return None  # a dtype, or another tensor
        device = self._torch.device(given)
        if device.type != "cuda":
            return None
        return device if device.index is not None else self._torch.device("cuda", self._torch.cuda.current_device())

    def _copy_ahead(self, tensors: list[Any], loose: dict[int, Any]) -> bool:
        cuda = self._torch.cuda
        if len(self._ahead) > MOST_AWAITED * max(1, len(self._targets)):
            self._ahead.clear()
            self._targets.clear()
        # What is made under inference mode counts no changes, and no training can have it.
        if not self._targets or self._torch.is_inference_mode_enabled() or cuda.is_current_stream_capturing():
            return False
        wanted = [
            (tensor, self._targets[place])
            for place, tensor in enumerate(tensors)
            if place in self._targets and id(tensor) in loose and not tensor.is_inference() and not self._is_under_way(tensor)
        ]
        if not wanted:
            return False
        event = self._next_event()
        with cuda.stream(self._stream):
            for tensor, device in wanted:
                copy = self._torch.empty_like(tensor, device=device)
                copy.copy_(tensor, non_blocking=True)
                self._ahead[id(tensor)] = (ref(tensor), tensor._version, copy, device, event)
                self.copied_ahead += 1
            event.record(self._stream)
        return True

    def _is_under_way(self, tensor: Any) -> bool:
        kept = self._ahead.get(id(tensor))
        return kept is not None and kept[0]() is tensor

    def _next_event(self) -> Any:
        if self._stream is None:
            self._stream = self._torch.cuda.Stream()
        if not self._events:
            self._events = [self._torch.cuda.Event() for _ in range(EVENTS)]
        self._turn = (self._turn + 1) % EVENTS
        return self._events[self._turn]

    def _ready(self, tensor: Any, place: int, device: Any) -> Any:
        if PREFETCH not in self.users:
            return None
        self._targets[place] = device
        kept = self._ahead.pop(id(tensor), None)
        if kept is None or kept[0]() is not tensor or kept[1] != tensor._version or kept[3] != device:
            return None  # the script has written to it since, or wants it elsewhere
        current = self._torch.cuda.current_stream(device)
        current.wait_event(kept[4])  # this batch's copies alone: the following one is on its way already
        kept[2].record_stream(current)  # its memory belongs to the other stream
        self.used_ahead += 1
        return kept[2]


def pinned(tensors: list[Any]) -> dict[int, Any]:
    """id of a tensor -> (weak reference, its place in the batch), of those in pinned memory."""
    return {id(tensor): (ref(tensor), place) for place, tensor in enumerate(tensors) if tensor.is_cpu and tensor.is_pinned()}
