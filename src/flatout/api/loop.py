"""The hot path: the methods that a training loop calls in each step.

In float32 on one device `backward` and `step` are the plain calls and one look at a flag: no synchronisation, no allocation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flatout.api import non_finite_gradients, placement, ranks
from flatout.api.checkpoint import Training
from flatout.api.errors import LossError, OrderError
from flatout.api.loss_watch import DIVERGED, EVERY, FINE, NOT_FINITE, LossWatch
from flatout.api.notes import Notes, sentence
from flatout.api.precision_trial import PrecisionTrial
from flatout.api.refusals import LossNotFiniteError, of_kind, share
from flatout.api.regime import PLAIN, Regime
from flatout.api.splitting import ComputeLoss, Splitter
from flatout.api.torch_part import torch
from flatout.api.training_config import AcceleratedConfig, TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

_MASK = EVERY - 1
_ELSEWHERE = ("same device", "expected device")  # how torch says that tensors of one operation lie on two devices


class _NotSetUp:
    """Stands where the precision will be, so that the hot path need not ask whether there is one."""

    def __getattr__(self, name: str) -> Any:
        raise OrderError("library.not-prepared", name=name)


class Loop:
    """The state of one training's loop; `TrainingAccelerator` sets it up."""

    _config: AcceleratedConfig
    _device: Any
    _watch: LossWatch

    def __init__(self) -> None:
        self._notes = Notes()
        self._training: Training | None = None
        self._monitor: Any = None
        self._loss: Any = None  # of the last batch, for the monitor
        self._regime = cast("Regime", _NotSetUp())
        self._trial: PrecisionTrial | None = None
        self._accumulation = 1
        self._adds_nothing = self._is_plain = False
        self._modules: list[Any] = []  # as the loop calls them, DDP's wrapper included
        self._splitter: Splitter | None = None
        self._micro: dict[int, int] = {}  # id of an optimizer -> micro-batches since its last step
        self._backwards = 0
        self._has_fallen_back = False
        self._leaves_out: set[int] = set()  # ids of the optimizers that leave a step out by themselves
        self._last_good: Path | None = None  # the last checkpoint, written or read, whose weights were finite
        self._samples = 0  # since the last step, for the monitor
        self.steps = 0  # of optimizers, those that a scaler left out included

    def autocast(self) -> AbstractContextManager[Any]:
        """Around the forward pass and the loss."""
        regime = self._regime
        return PLAIN if regime.dtype is None else regime.autocast()

    def backward(self, loss: Tensor) -> None:
        if self._is_plain:
            try:
                loss.backward()
            except (AttributeError, RuntimeError, TypeError) as error:
                _explain(loss, error)
                raise
        else:
            self._pass_back(loss)
            self._loss = loss.detach()
        self._backwards = count = self._backwards + 1
        if not count & _MASK:
            self._look_at(loss)

    def step(self, optimizer: Optimizer) -> bool:
        """The optimizer's step, and its gradients cleared. False where an accumulation goes on and nothing was done."""
        try:
            if self._is_plain:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                self.steps += 1
                return True
            return self._whole_step(optimizer)
        except AttributeError:
            _check_optimizer(optimizer)  # only now: where all is well it costs nothing
            raise

    def flush(self, optimizer: Optimizer) -> bool:
        """Ends an accumulation early, on the mean of what there is. False where there was nothing."""
        done = self._micro.get(id(optimizer), 0)
        if not done:
            return False
        if self._config.distributed == "fsdp":
            raise OrderError("library.flush-sharded")
        ranks.multiply_gradients(optimizer, self._accumulation / done, self._config.distributed)
        self._micro[id(optimizer)] = self._accumulation - 1
        return self._whole_step(optimizer, brings=0)

    def clip(self, optimizer: Optimizer, max_norm: float) -> Tensor:
        """The gradients' norm before, as a tensor: nothing waits for it. With `grad_clip` configured `step` does it."""
        _check_optimizer(optimizer)
        share("max_norm", max_norm, math.inf)
        self._regime.unscale(optimizer)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        norm: Tensor = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        return norm

    @property
    def is_accumulating(self) -> bool:
        """Whether there are micro-batches whose step is still to come."""
        return any(self._micro.values())

    @contextmanager
    def accumulate(self, steps: int) -> Iterator[None]:
        """Inside, the optimizers step once in so many calls of `step`, on the mean of their losses; at the end on the rest."""
        TrainingConfig(gradient_accumulation_steps=steps)  # checks it
        before, self._accumulation = self._accumulation, steps
        self._arrange()
        self._arrange_sync()
        try:
            yield
            for optimizer in self._optimizers():
                self.flush(optimizer)
        except BaseException:
            for optimizer in self._optimizers():  # half a group is no gradient of anything
                if self._micro.get(id(optimizer)):
                    optimizer.zero_grad(set_to_none=True)
                    self._micro[id(optimizer)] = 0
            raise
        finally:
            self._accumulation = before
            self._arrange()
            self._arrange_sync()

    @contextmanager
    def evaluate(self, *models: Module) -> Iterator[None]:
        """Evaluation mode, no gradients, the same precision as in training; afterwards everything as before."""
        modules = [module for model in (models or self._modules) for module in model.modules() if module.training]
        for module in modules:
            module.training = False
        try:
            with torch.no_grad(), self.autocast():
                yield
        finally:
            for module in modules:
                module.training = True

    def train_on(self, batch: Any, compute_loss: ComputeLoss) -> Tensor:
        """Forward and backward of one batch, in parts where it does not fit. `compute_loss(batch)` gives the mean over samples,
        or `(loss, weight)` where its mean is over something else. Returns the batch's loss, detached."""
        if self._splitter is None:
            raise OrderError("library.not-prepared", name="train_on")

        def compute(part: Any) -> Any:
            with self.autocast():
                return compute_loss(part)

        is_first = not any(self._micro.values())
        try:
            loss: Tensor = self._splitter.run(batch, compute, self._pass_back, is_first, compute_loss)
        except RuntimeError as error:
            if any(words in str(error) for words in _ELSEWHERE):
                for module in self._modules:
                    placement.check_placement(module, self._device, batch)
            raise
        self._loss = loss
        self._backwards = count = self._backwards + 1
        if not count & _MASK:
            self._look_at(loss)
        return loss

    def _arrange(self) -> None:
        """Which of the two ways the hot path takes from now on."""
        self._adds_nothing = self._regime.scaler is None and self._accumulation == 1
        wanted = self._config.wanted
        is_asked_nothing = self._trial is None and self._monitor is None and wanted.grad_clip is None
        self._leaves_out = self._which_leave_out()
        self._is_plain = self._adds_nothing and is_asked_nothing and not self._leaves_out

    def _which_leave_out(self) -> set[int]:
        """In mixed precision without a scaler, and after it was given up: what made its losses no numbers may come again. In a
        float32 that was asked for a step is the user's own, whatever is in it."""
        is_asked_for = self._regime.dtype is None and not self._has_fallen_back
        if is_asked_for or self._regime.scaler is not None:
            return set()
        return {id(optimizer) for optimizer in self._optimizers() if non_finite_gradients.leaves_steps_out(optimizer)}

    def _pass_back(self, loss: Any) -> None:
        try:
            if self._adds_nothing:
                loss.backward()
                return
            if self._accumulation > 1:
                loss = loss / self._accumulation
            (loss if self._regime.scaler is None else self._regime.scaler.scale(loss)).backward()
        except (AttributeError, RuntimeError, TypeError) as error:
            _explain(loss, error)
            raise

    def _whole_step(self, optimizer: Any, brings: int | None = None) -> bool:
        """`brings`: samples, where they are not those of a batch that came since."""
        done = self._micro.get(id(optimizer), 0) + 1
        if self._monitor is not None:
            self._samples += self._samples_in_hand() if brings is None else brings
        if done < self._accumulation:
            self._micro[id(optimizer)] = done
            self._arrange_sync()
            return False
        grad_clip = self._config.wanted.grad_clip
        if grad_clip is not None:
            self.clip(optimizer, grad_clip)
        if self._regime.scaler is not None:
            self._regime.step(optimizer)
        elif id(optimizer) in self._leaves_out:
            self._regime.step_if_finite(optimizer)
        else:
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        if self._accumulation > 1:
            self._micro[id(optimizer)] = 0
            self._arrange_sync()
        if self._trial is not None:
            self._try_on(self._trial)
        if self._monitor is not None:
            self._monitor.step(self._samples, self._loss)
            self._samples = 0
        return True

    def _optimizers(self) -> list[Any]:
        return [] if self._training is None else list(self._training.optimizers.values())

    def _samples_in_hand(self) -> int:
        assert self._training is not None
        return next((loader.samples for loader in self._training.loaders.values() if loader.samples), 0)

    def _arrange_sync(self) -> None:
        mode = self._config.distributed
        if mode != "no":
            last = max(self._micro.values(), default=0) + 1 >= self._accumulation
            for module in self._modules:
                ranks.set_sync(module, mode, last)

    def _try_on(self, trial: PrecisionTrial) -> None:
        low = trial.stepped()
        if trial.result is None:
            self._regime.switch(trial.candidate if low else trial.base)
        else:
            self._regime.switch(trial.winner)
            key = "library.precision-faster" if trial.is_faster else "library.precision-not-faster"
            self._notes.tell(key, **trial.told())
            # fp8 has to beat bf16, and is tried only where that is what it would replace.
            next_one = trial.winner == "bf16" and trial.base == "no" and self._regime.float8.layers
            self._trial = PrecisionTrial(self._device, "bf16", "fp8") if next_one else None
        self._arrange()

    def _look_at(self, loss: Any) -> None:
        if self._config.distributed != "no":  # all fall back or none: gradients are summed over the ranks
            loss = ranks.mean_of(loss)
        self._watch.note(loss)
        if self._regime.float8.odd_rows and self._regime.precision == "fp8":
            self._notes.warn_once("library.fp8-rows", rows=self._regime.float8.odd_rows)
        leaves_out = len(self._leaves_out) == len(self._optimizers()) > 0
        verdict = self._watch.verdict(self._regime.scaler is not None or leaves_out)
        if verdict == FINE:
            return
        if self._regime.precision != "no" and not self._has_fallen_back:
            self._fall_back(verdict)
        elif verdict == NOT_FINITE:
            raise self._not_finite("library.loss-not-finite")
        elif verdict == DIVERGED:
            self._notes.warn("library.loss-diverges", step=self.steps - self.steps % 1000)

    def _fall_back(self, verdict: str) -> None:
        """Once, to float32. Weights that are no numbers any more train on in no precision: they go back to a checkpoint."""
        training = self._training
        assert training is not None
        told = {
            "precision": self._regime.precision,
            "why": sentence(f"library.verdict-{verdict}"),
            "step": self.steps,
        }
        self._has_fallen_back = True
        self._trial = None
        self._regime.switch("no")
        self._watch.forget()
        self._arrange()
        non_finite_gradients.drop_gradients(self._optimizers())
        if self._are_finite():
            self._notes.warn("library.fell-back", **told)
            return
        last = self._last_good
        is_there = ranks.all_say(last is not None and last.exists(), self._config.distributed, self._device)
        if last is None or not is_there:
            raise self._not_finite("library.weights-not-finite", **told)
        training.put_weights_back(last, self._config.world_size)
        if not self._are_finite():
            raise self._not_finite("library.weights-not-finite", **told)
        self._notes.warn("library.went-back", path=str(last), **told)

    def _be_finite(self) -> None:
        """Before weights are kept: those that are no numbers go back, once, or end the training. Waits for the device."""
        if self._are_finite():
            return
        if self._regime.precision == "no" or self._has_fallen_back:
            raise self._not_finite("library.loss-not-finite")
        self._fall_back(NOT_FINITE)

    def _are_finite(self) -> bool:
        models = [] if self._training is None else list(self._training.models.values())
        return ranks.all_say(non_finite_gradients.are_finite(models), self._config.distributed, self._device)

    def _not_finite(self, key: str, **told: object) -> LossNotFiniteError:
        last = sentence("library.no-checkpoint") if self._last_good is None else str(self._last_good)
        return LossNotFiniteError(key, **{"step": self.steps, "last": last, **told})


def _check_optimizer(optimizer: Any) -> None:
    of_kind("optimizer", optimizer, torch.optim.Optimizer, "torch.optim.Optimizer")


def _explain(loss: Any, error: Exception) -> None:
    """What torch's error means for the one who called `backward(loss)`; nothing where the fault lies elsewhere."""
    if not isinstance(loss, torch.Tensor):
        raise LossError("library.loss-type", found=type(loss).__name__) from error
    if loss.numel() != 1:
        raise LossError("library.loss-shape", shape=list(loss.shape)) from error
    if not loss.requires_grad:
        raise LossError("library.loss-no-graph") from error
