"""Trains on a batch that does not fit in parts, with the same gradients as for the whole batch.

The parts' losses are weighted by their samples and their gradients summed. What a failed attempt left behind is undone first:
its gradients, the random state, the buffers. Where parts would mean something else it is refused with the reason:

* BatchNorm in training takes its statistics from the batch it sees, and a part is another batch.
* A loss that is no mean over samples (over tokens, say) is found by measuring: a small piece of the batch as a whole against
  its two halves, in full precision, at the first, second, fourth … batch in parts, for a batch without padding does not
  show it. Such a `compute_loss` can return `(loss, weight)` instead, the weight being what its mean is over.
* One rank that splits while the others do not would leave them waiting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from _flatout_agent.knobs.nested_tensors import changed_tensors
from _flatout_agent.knobs.state_snapshot import Snapshot
from _flatout_agent.timeline.samples_in_batch import size_of
from flatout.api.errors import SplitError
from flatout.api.torch_part import torch

ComputeLoss = Callable[[Any], Any]  # batch -> loss, or (loss, weight)

GROW_AFTER = 50  # batches in parts before fewer are tried again; doubled each time that was too early
ROOM = 0.85  # of the memory, that the peak may reach with half the parts for it to be tried
SAME = 1e-3  # relative: TF32 rounds, a mean over other things is further off
PIECE = 4  # samples of the piece that is measured

ALLOCATION = ("out of memory", "can't allocate memory", "cudnn_status_alloc_failed", "cublas_status_alloc_failed")


def is_out_of_memory(error: BaseException) -> bool:
    kind = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError
    return isinstance(error, kind) or (isinstance(error, RuntimeError) and any(s in str(error).lower() for s in ALLOCATION))


class _Kept:
    """The buffers of a model, as a snapshot asks for them."""

    def __init__(self, model: Any) -> None:
        self._buffers = list(model.buffers())

    def buffers(self) -> list[Any]:
        return self._buffers


class Splitter:
    """How many parts this training's batches need just now, and the batch carried out in them."""

    def __init__(
        self, model: Any, device: Any, is_allowed: bool, world_size: int, memory_fraction: float | None = None
    ) -> None:
        self._model = model
        self._device = device
        self._memory_fraction = memory_fraction or 1.0
        self._is_allowed = is_allowed
        # Found once: asking a module for its parts takes longer than all else here.
        self._kept = _Kept(model)
        self._norms = [each for each in model.modules() if isinstance(each, torch.nn.modules.batchnorm._BatchNorm)]
        self._cards = [device.index or 0] if device.type == "cuda" else []
        self._world_size = world_size
        self.parts = 1
        self.splits = 0  # batches that had to be begun again
        self._in_parts = 0  # batches
        self._good = 0
        self._patience = GROW_AFTER
        self._is_trying = False

    def run(
        self,
        batch: Any,
        compute: ComputeLoss,
        backward: Callable[[Any], None],
        is_first: bool = False,
        exactly: ComputeLoss | None = None,
    ) -> Any:
        """The batch's loss, detached; its gradients are added to what was there, which is nothing where `is_first`.

        `exactly`: the same loss without autocast, to see what it is a mean of.
        """
        exactly = exactly or compute
        if self.parts > 1:
            self._look_now_and_then(batch, exactly)
        held = [] if is_first else self._set_gradients_aside()
        before = self._before()
        while True:
            try:
                loss = self._attempt(batch, compute, backward)
            except Exception as error:
                if not is_out_of_memory(error):
                    self._give_gradients_back(held, add=False)
                    raise
                error.__traceback__ = None  # it holds the activations of the failed attempt
                failure: Exception = error
            else:
                break
            # Outside the handler: inside, the failed attempt's memory would still be held.
            self._drop_gradients()
            if before is not None:
                before.restore()
            self._empty_cache()
            try:
                self._make_more_parts(batch, exactly, failure)
            except BaseException:
                self._give_gradients_back(held, add=False)
                raise
        self._give_gradients_back(held, add=True)
        self._maybe_fewer()
        return loss

    def _before(self) -> Snapshot | None:
        """What an attempt may change beside gradients. Nothing is kept for a batch that would not be split anyway."""
        if not self._is_allowed or any(norm.training for norm in self._norms):
            return None
        return Snapshot(torch, self._kept, self._cards)

    def _attempt(self, batch: Any, compute: ComputeLoss, backward: Callable[[Any], None]) -> Any:
        if self.parts == 1:
            loss, _ = _loss_and_weight(compute(batch), 1.0)
            backward(loss)
            return loss.detach()
        parts = list(parts_of(batch, self.parts))
        whole = sum(samples for _, samples in parts)
        total: Any = None
        weights: Any = None
        for part, samples in parts:
            answer = compute(part)
            loss, weight = _loss_and_weight(answer, 1.0 if self._is_sum else samples / whole)
            if isinstance(answer, tuple):
                weights = weight if weights is None else weights + weight
                if not float(weight):
                    continue  # a mean over nothing is no number, and counts for nothing
            scaled = loss * weight
            backward(scaled)
            total = scaled.detach() if total is None else total + scaled.detach()
            del loss, scaled, answer
        if weights is None:
            return total
        if total is None:
            return torch.full((), math.nan, device=self._device)  # as the whole batch would have it
        # By the sum of the weights, which is known only at the end.
        for parameter in self._model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(weights)
        return total / weights

    # -- how many parts -----------------------------------------------------------------------------------------------

    _is_sum = False

    def _look_now_and_then(self, batch: Any, exactly: ComputeLoss) -> None:
        self._in_parts += 1
        if self._in_parts & (self._in_parts - 1) == 0 and self._is_allowed and size_of(batch) > 1:
            self._look_at_the_loss(batch, exactly, None)

    def _make_more_parts(self, batch: Any, compute: ComputeLoss, failure: Exception) -> None:
        samples = self._splittable(batch, failure)
        if self._is_trying:
            self._patience *= 2  # it was too early
        self._is_trying, self._good = False, 0
        if self.parts >= samples:
            raise SplitError("library.split-one-sample", detail=_first_line(failure)) from failure
        if self.splits == 0:
            self._look_at_the_loss(batch, compute, failure)
        self.splits += 1
        self.parts = min(samples, self.parts * 2)

    def _splittable(self, batch: Any, failure: Exception) -> int:
        if not self._is_allowed:
            raise failure
        if self._world_size > 1:
            raise SplitError("library.split-ranks") from failure
        for name, module in self._model.named_modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.training:
                raise SplitError("library.split-batchnorm", module=name or type(module).__name__) from failure
        samples = size_of(batch)
        if samples < 1:
            raise SplitError("library.split-no-samples", found=type(batch).__name__) from failure
        return samples

    def _look_at_the_loss(self, batch: Any, compute: ComputeLoss, failure: Exception | None) -> None:
        """What the loss is over: a piece as a whole against its halves, without gradients, without dropout, nothing changed."""
        piece, count = next(iter(parts_of(batch, max(1, math.ceil(size_of(batch) / PIECE)))))
        if count < 2:
            return
        training = [module for module in self._model.modules() if module.training]
        before = Snapshot(torch, self._kept, self._cards)
        try:
            for module in training:
                module.training = False
            with torch.no_grad():
                whole, halves = compute(piece), [(compute(part), n) for part, n in parts_of(piece, 2)]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return  # not even this piece fits: the next attempt has smaller parts, or says so
        finally:
            for module in training:
                module.training = True
            before.restore()
        if isinstance(whole, tuple):
            return  # it says itself what it is over
        mean = sum(float(loss) * n for loss, n in halves) / count
        if _near(float(whole), mean):
            self._is_sum = False
        elif _near(float(whole), sum(float(loss) for loss, _ in halves)):
            self._is_sum = True
        else:
            raise SplitError("library.split-loss", whole=round(float(whole), 6), halves=round(mean, 6)) from failure

    def _maybe_fewer(self) -> None:
        self._good += 1
        if self._is_trying and self._good >= 2:
            self._is_trying = False
        if self.parts > 1 and self._good >= self._patience and self._has_room():
            self.parts = max(1, self.parts // 2)
            self._good, self._is_trying = 0, True

    def _has_room(self) -> bool:
        if self._device.type != "cuda":
            return True
        peak = torch.cuda.max_memory_allocated(self._device)
        kept = torch.cuda.memory_allocated(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        limit = min(self._memory_fraction * total, free + torch.cuda.memory_reserved(self._device))
        torch.cuda.reset_peak_memory_stats(self._device)
        return bool(kept + 2 * (peak - kept) < ROOM * limit)

    # -- gradients ----------------------------------------------------------------------------------------------------

    def _set_gradients_aside(self) -> list[Any]:
        """Of an accumulation under way: this batch's own must be droppable without them."""
        held = [(p, p.grad) for p in self._model.parameters() if p.grad is not None]
        for parameter, _ in held:
            parameter.grad = None
        return held

    def _drop_gradients(self) -> None:
        for parameter in self._model.parameters():
            parameter.grad = None

    def _give_gradients_back(self, held: list[Any], add: bool) -> None:
        if not add:
            self._drop_gradients()
        for parameter, gradient in held:
            parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)

    def _empty_cache(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def parts_of(batch: Any, count: int) -> Iterator[tuple[Any, int]]:
    """The batch in so many parts of nearly equal size, with their samples. What has no sample dimension goes to each whole."""
    samples = size_of(batch)
    bounds = [round(number * samples / count) for number in range(count + 1)]
    for begin, end in pairwise(bounds):
        if end > begin:
            yield _sliced(batch, samples, begin, end), end - begin


def _sliced(batch: Any, samples: int, begin: int, end: int) -> Any:
    def cut(tensor: Any) -> Any:
        return tensor[begin:end] if tensor.dim() and tensor.shape[0] == samples else tensor

    def lists(thing: Any) -> Any:
        """Names and boxes come as a list with one entry for each sample."""
        if isinstance(thing, dict):
            return {key: lists(part) for key, part in thing.items()}
        if isinstance(thing, tuple):
            return tuple(lists(part) for part in thing)
        if isinstance(thing, list):
            if len(thing) == samples and not any(isinstance(part, torch.Tensor) and size_of(part) == samples for part in thing):
                return thing[begin:end]
            return [lists(part) for part in thing]
        return thing

    return changed_tensors(torch, lists(batch), cut)


def _loss_and_weight(answer: Any, weight: float) -> tuple[Any, Any]:
    return (answer[0], answer[1]) if isinstance(answer, tuple) else (answer, weight)


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= SAME * max(abs(one), abs(other), 1e-6)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
