"""`TrainingAccelerator`: set-up, prepare, save, load and `fit`; the methods that a loop calls in each step are in `loop.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from flatout.api import float8, optimizer_options, placement, profile_check, ranks, resolving
from flatout.api.checkpoint import Training
from flatout.api.config_source import ConfigSource
from flatout.api.data_loading import Batch, OptimizedDataLoader, check_loader
from flatout.api.errors import ModelError, OrderError
from flatout.api.fitting import FitResult, fit
from flatout.api.knobs_on import KnobsOn
from flatout.api.learning_rate import scaled_learning_rate, warm_up
from flatout.api.loop import Loop
from flatout.api.loss_watch import LossWatch
from flatout.api.precision_trial import PrecisionTrial
from flatout.api.ranks import Ranks
from flatout.api.refusals import LossNotFiniteError, of_kind, path_of
from flatout.api.regime import Regime
from flatout.api.splitting import Splitter
from flatout.api.torch_part import torch
from flatout.api.training_config import AcceleratedConfig, TrainingConfig

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import DataLoader

    from flatout.api.monitor import PerformanceMonitor

M = TypeVar("M", bound="Module")
O = TypeVar("O", bound="Optimizer")  # noqa: E741
B2 = TypeVar("B2")


class TrainingAccelerator(Loop):
    """One training. `config` as in `setup_gpu_training`; without it nothing that rounds differently is turned on."""

    def __init__(self, config: ConfigSource | None = None, *, trust_profile: bool = False) -> None:
        super().__init__()
        if config is not None:
            self.setup_gpu_training(config, trust_profile=trust_profile)

    # -- the three of the documents -----------------------------------------------------------------------------------

    def setup_gpu_training(self, config: ConfigSource = "auto", *, trust_profile: bool = False) -> AcceleratedConfig:
        """A profile (flatout.toml), a YAML or JSON file, a dict, a `TrainingConfig`, or "auto".

        A profile that was measured on another torch, driver or card is left out, unless `trust_profile` is set.
        """
        if self._training is not None and self._training.models:
            raise OrderError("library.set-up-late")
        wanted, differs = profile_check.read(config, trust_profile)
        resolved = resolving.resolve(wanted)
        self._device = torch.device(resolved.device)
        resolving.take(self._device, wanted.gpu_memory_fraction)
        self._ranks = Ranks(resolved.rank, resolved.local_rank, resolved.world_size)
        self._notes.is_quiet = not self._ranks.is_first
        if differs:
            resolved.reasons["profile"] = differs
            self._notes.warn_that(differs)
        if resolved.distributed != "no":
            ranks.start(self._device)
        self._config = resolved
        is_tried = resolved.precision_is_tried
        self._regime = Regime(self._device, "no" if is_tried else resolved.precision, is_tried)
        self._trial = PrecisionTrial(self._device, "no", resolved.precision) if is_tried else None
        self._watch = LossWatch(self._device, resolved.distributed != "no")
        self._knobs = KnobsOn(resolved, self._device)
        self._training = Training(self._regime, resolved.distributed == "fsdp")
        self._accumulation = resolved.gradient_accumulation_steps
        self._arrange()
        return resolved

    def optimize_data_loading(self, loader: DataLoader[Batch]) -> OptimizedDataLoader[Batch]:
        """Pinned, in workers, copied ahead to the device: the same batches in the same order."""
        training = self._ready()
        made: OptimizedDataLoader[Batch] = OptimizedDataLoader(loader, self.config.wanted, self._device, self._ranks)
        made.counts_samples = self._monitor is not None
        training.loaders[f"loader-{len(training.loaders) + 1}"] = made
        for reason in made.reasons.values():
            self._notes.note(reason)
        return made

    def enable_performance_monitoring(self) -> PerformanceMonitor:
        """Started; `step` feeds it from now on."""
        from flatout.api.monitor import PerformanceMonitor

        training = self._ready()
        self._monitor = PerformanceMonitor(self._device)
        self._monitor.start()
        for loader in training.loaders.values():
            loader.counts_samples = True
        self._arrange()
        monitor: PerformanceMonitor = self._monitor
        return monitor

    # -- before the loop ----------------------------------------------------------------------------------------------

    @overload
    def prepare(self, model: M, optimizer: O) -> tuple[M, O]: ...
    @overload
    def prepare(self, model: M, optimizer: O, loader: DataLoader[Batch], /) -> tuple[M, O, OptimizedDataLoader[Batch]]: ...
    @overload
    def prepare(
        self, model: M, optimizer: O, loader: DataLoader[Batch], second: DataLoader[B2], /
    ) -> tuple[M, O, OptimizedDataLoader[Batch], OptimizedDataLoader[B2]]: ...
    def prepare(self, model: Any, optimizer: Any, *loaders: Any) -> Any:
        """On the device, with the knobs on, wrapped for several ranks. Optimizer and (but for DDP) model stay themselves."""
        training = self._ready()
        placement.check_model(model, optimizer)
        for loader in loaders:
            check_loader(loader)
        if self._config.distributed == "fsdp" and optimizer.state:
            raise ModelError("library.optimizer-has-state")
        optimizer_options.tell_differences(optimizer, self._config.wanted, self._notes)
        self._take_float8(model)
        before = dict(model.named_parameters())
        model.to(self._device)
        if optimizer.state:
            optimizer.load_state_dict(optimizer.state_dict())  # its state follows the parameters to their device
        placement.check_placement(model, self._device)
        mode = self.config.distributed
        module = model
        if mode == "fsdp":
            module = ranks.wrapped(model, mode, self._device)
            ranks.follow(optimizer, before, model)
        self._knobs.put_on(model, optimizer, self._notes)
        if mode == "ddp":
            module = ranks.wrapped(model, mode, self._device)
        name = f"model-{len(training.models) + 1}"
        training.models[name], training.optimizers[name] = model, optimizer
        self._modules.append(module)
        whole = torch.nn.ModuleList(training.models.values())
        wanted = self.config.wanted
        self._splitter = Splitter(whole, self._device, wanted.split_batches, self._ranks.world_size, wanted.gpu_memory_fraction)
        self._micro[id(optimizer)] = 0
        self._arrange()
        self._arrange_sync()
        return (module, optimizer, *(self.optimize_data_loading(loader) for loader in loaders))

    def make_optimizer(self, model: Module, kind: type[O] | None = None, **options: Any) -> O:
        """`kind` (AdamW) over the model's parameters, with the configuration's lr, betas, eps and weight_decay; `options` win,
        and None leaves a configured value out."""
        made: O = optimizer_options.made(model, kind or torch.optim.AdamW, self.config.wanted, options)
        return made

    def register(self, **things: Any) -> None:
        """Schedulers and whatever else has `state_dict` and `load_state_dict`: saved and loaded with the rest."""
        for name, thing in things.items():
            if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
                raise OrderError("library.no-state", name=name, found=type(thing).__name__)
            self._ready().registered[name] = thing

    def warm_up(self, optimizer: Optimizer, steps: int, then: LRScheduler | None = None) -> LRScheduler:
        """A scheduler, saved with the rest: up to the learning rate in so many of its steps, then as `then` has it."""
        scheduler: LRScheduler = warm_up(optimizer, steps, then)
        self.register(warm_up=scheduler)
        return scheduler

    def scale_learning_rate(self, optimizer: Optimizer, batch: int, new_batch: int, rule: str = "linear") -> None:
        """For another batch size than the learning rate was found with: by the ratio, its root ("sqrt"), or not ("none")."""
        of_kind("optimizer", optimizer, torch.optim.Optimizer, "torch.optim.Optimizer")
        for group in optimizer.param_groups:
            group["lr"] = scaled_learning_rate(group["lr"], batch, new_batch, rule)

    def unwrap(self, model: Module) -> Module:
        """The user's own module inside DDP's wrapper, as it was: layers in fp8 are plain until the next forward pass."""
        inner: Module = getattr(model, "module", model) if model in self._modules else model
        if self._training is not None:
            self._regime.float8.take_off()
        return inner

    # -- the whole training -------------------------------------------------------------------------------------------

    def fit(
        self, model: Module, optimizer: Optimizer, loader: DataLoader[Any], loss: Any, epochs: int = 1, **options: Any
    ) -> FitResult:
        """Prepares and trains. `loss` is a module for batches (input, target), or a function of (model, batch).

        Options: `validation` (a loader), `scheduler`, `checkpoint` (a path: saved after each epoch, gone on from if there),
        `best` (a path: saved after each epoch whose validation loss, or without validation whose loss, is the lowest so far).
        """
        return fit(self, model, optimizer, loader, loss, epochs, options)

    def save(self, path: str | Path, **extra: Any) -> None:
        """Everything that the training needs to go on to the bit: whole or not at all. `extra`: plain values and tensors."""
        training = self._prepared("save")
        counts = {"steps": self.steps, "backwards": self._backwards, "tried": int(self._trial is None)}
        micro = [self._micro.get(id(optimizer), 0) for optimizer in training.optimizers.values()]
        if any(micro):
            raise OrderError("library.save-in-accumulation", count=max(micro))
        where, is_good = path_of("path", path).absolute(), self._are_finite()
        if where == self._last_good and not is_good:
            raise LossNotFiniteError("library.save-not-finite", path=str(path))
        training.save(where, counts, extra, self._ranks.is_first)
        self._last_good = where if is_good else self._last_good

    def load(self, path: str | Path) -> dict[str, Any]:
        """Everything as `save` found it, or an error and nothing changed. Gives back the `extra`."""
        training = self._prepared("load")
        where = path_of("path", path).absolute()
        counts, extra = training.load(where, self._ranks.rank, self._ranks.world_size)
        if self._are_finite():
            self._last_good = where
        self.steps, self._backwards = counts["steps"], counts["backwards"]
        if counts["tried"]:
            self._trial = None
        elif self._trial is not None:
            self._regime.switch("no")  # the trial begins anew
            self._trial = PrecisionTrial(self._device, "no", self._config.precision)
        self._arrange()
        return extra

    # -- what was decided and seen ------------------------------------------------------------------------------------

    @property
    def config(self) -> AcceleratedConfig:
        self._ready()
        return self._config

    @property
    def device(self) -> torch.device:
        self._ready()
        return self._device

    @property
    def notes(self) -> list[str]:
        """What was decided or given up on the way, in sentences."""
        return list(self._notes.said)

    @property
    def precision(self) -> str:
        return self._regime.precision

    @property
    def skipped_steps(self) -> int:
        """Steps that were left out because of gradients that are not finite. Waits for the device."""
        return self._regime.skipped_steps

    @property
    def parts(self) -> int:
        """In how many parts a batch is trained on just now."""
        return 1 if self._splitter is None else self._splitter.parts

    @property
    def is_first_rank(self) -> bool:
        self._ready()
        return self._ranks.is_first

    def _take_float8(self, model: Any) -> None:
        """Its layers, where fp8 was asked for or may be tried."""
        is_asked = self._config.precision == "fp8"
        if not is_asked and (self._trial is None or float8.obstacle(self._device) is not None):
            return
        if not self._regime.float8.take(model) and is_asked:
            raise ModelError("library.fp8-layers", name=type(model).__name__)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _ready(self) -> Training:
        if self._training is None:
            self.setup_gpu_training(TrainingConfig())
        assert self._training is not None
        return self._training

    def _prepared(self, name: str) -> Training:
        if self._training is None or not self._training.models:
            raise OrderError("library.not-prepared", name=name)
        return self._training
