"""What a user asks for (`TrainingConfig`), and what is in effect on this machine (`AcceleratedConfig`). No torch here."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from flatout.api.errors import ConfigurationError
from flatout.api.refusals import unknown_name
from flatout.base.errors import UsageError
from flatout.knobs import catalogue, values

T = TypeVar("T")
Auto = Literal["auto"]

DISTRIBUTED = ("auto", "no", "ddp", "fsdp")


def _names_are_known(cls: type[T]) -> type[T]:
    """A misspelt field is refused as a misspelt key of a file is; the signature stays what people and editors see."""
    made: Callable[..., None] = cls.__init__

    @functools.wraps(made)
    def checked(self: T, *unnamed: Any, **wanted: Any) -> None:
        names = [each.name for each in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for name in wanted:
            if name not in names:
                raise unknown_name(cls.__name__, name, names)
        made(self, *unnamed, **wanted)

    cls.__init__ = checked  # type: ignore[method-assign, assignment]
    return cls


@_names_are_known
@dataclass(kw_only=True)
class TrainingConfig:
    """What is wanted. Left alone it changes no number of a training: what rounds differently is asked for by name or "auto"."""

    use_gpu: bool = True
    device_id: int | str | None = None
    """As torch counts in this process: 0, "cuda:1", "cpu". None: the best card, the discrete one first."""
    gpu_memory_fraction: float | None = None

    precision: bool | str = "no"
    """"no", "bf16", "fp16", "fp8", "auto" (what the device supports, kept only if measured faster); true is "auto"."""
    tf32: bool | Auto = False
    cudnn_benchmark: bool | Auto = False
    channels_last: bool = False
    fused_optimizer: bool | Auto = False
    compile_model: bool | str = "no"

    batch_size: int | None = None
    gradient_accumulation_steps: int = 1
    split_batches: bool = True
    """A batch that does not fit in `train_on` and `fit` is trained on in parts, where that means the same."""
    grad_clip: float | None = None
    lr: float | None = None
    betas: tuple[float, float] | None = None
    eps: float | None = None
    weight_decay: float | None = None

    num_workers: int | Auto = "auto"
    pin_memory: bool | Auto = "auto"
    persistent_workers: bool | Auto = "auto"
    prefetch_factor: int | None = None
    device_prefetch: bool | Auto = "auto"

    multi_gpu: bool = False
    distributed: str = "auto"
    """"ddp" or "fsdp" under torchrun; "auto" is ddp where there are several ranks."""

    knobs: dict[str, str] = field(default_factory=dict)
    """Further knobs of a profile (`flatout explain`), put on as they are: cpu_threads, gc_policy, checkpointing."""
    model: dict[str, Any] = field(default_factory=dict)
    """What the file says about the model (base_channels, num_blocks …) and whatever else it holds: never touched."""

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            setattr(self, name, check(name, getattr(self, name)))

    @classmethod
    def auto(cls) -> TrainingConfig:
        """Everything that this device does faster, mixed precision measured on the training's own steps."""
        return cls(precision="auto", tf32="auto", cudnn_benchmark="auto", fused_optimizer="auto")

    @classmethod
    def from_dict(cls, wanted: Mapping[str, Any], where: str = "config") -> TrainingConfig:
        """Fields by their names; an unknown one is an error with the nearest known."""
        names = [each.name for each in dataclasses.fields(cls)]
        for name in wanted:
            if name not in names:
                raise unknown_name(where, str(name), names)
        return cls(**dict(wanted))


@dataclass(frozen=True, kw_only=True)
class AcceleratedConfig:
    """What is in effect here; `reasons` has one sentence for every choice that was made for the user."""

    device: str
    precision: str
    """"no", "bf16", "fp16" or "fp8"; while `precision_is_tried`, the first candidate."""
    precision_is_tried: bool
    tf32: bool
    cudnn_benchmark: bool
    channels_last: bool
    fused_optimizer: bool
    compile_model: str
    gradient_accumulation_steps: int
    distributed: str
    rank: int
    local_rank: int
    world_size: int
    reasons: dict[str, str]
    wanted: TrainingConfig


# -- what each field takes ------------------------------------------------------------------------------------------------


def _wrong(name: str, value: object, wanted: str) -> ConfigurationError:
    return ConfigurationError("library.config-value", name=name, value=repr(value), wanted=wanted)


def _truth(name: str, value: Any) -> Any:
    if not isinstance(value, bool):
        raise _wrong(name, value, "true, false")
    return value


def _truth_or_auto(name: str, value: Any) -> Any:
    if value != "auto" and not isinstance(value, bool):
        raise _wrong(name, value, "true, false, auto")
    return value


def _number(low: float, high: float, optional: bool = True, open_low: bool = False) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        if value is None and optional:
            return None
        if isinstance(value, str):  # PyYAML reads 1e-4 as a text
            try:
                value = float(value)
            except ValueError:
                raise _wrong(name, value, f"{low:g} … {high:g}") from None
        fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not fits or not low <= value <= high or (open_low and value == low):
            raise _wrong(name, value, f"{low:g} … {high:g}")
        return float(value)

    return check


def _whole(low: int, high: int, also: tuple[Any, ...] = ()) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        if value in also and not isinstance(value, bool):
            return value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _wrong(name, value, ", ".join([f"{low} … {high}", *map(str, also)]))
        return value

    return check


def _knob(knob: str) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        found = catalogue.find(knob)
        assert found is not None
        if not isinstance(value, values.Written):
            raise _wrong(name, value, ", ".join(found.domain))
        try:
            return values.meant(found, value, name)
        except UsageError:
            raise _wrong(name, value, ", ".join(found.domain)) from None

    return check


def _precision(name: str, value: Any) -> Any:
    """The knob's values, and fp8, which is the library's alone."""
    return "fp8" if str(value).strip().lower() in ("fp8", "float8") else _knob("precision")(name, value)


def _device(name: str, value: Any) -> Any:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= -1):
        return "cpu" if value == -1 else value
    if isinstance(value, str) and value.split(":")[0] in ("cpu", "cuda", "mps", "xpu", "auto"):
        return None if value in ("auto", "cuda") else value
    raise _wrong(name, value, "0, 1, …, cuda:0, cpu")


def _betas(name: str, value: Any) -> Any:
    if value is None:
        return None
    one = _number(0.0, 1.0, optional=False)
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise _wrong(name, value, "[0.9, 0.999]")
    return (one(name, value[0]), one(name, value[1]))


def _one_of(*names: str) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        if value not in names:
            raise _wrong(name, value, ", ".join(names))
        return value

    return check


def _table(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        raise _wrong(name, value, "{…}")
    return value


def _knobs(name: str, value: Any) -> Any:
    found = {values.known(str(knob), name).name: meant for knob, meant in _table(name, value).items()}
    return {knob: _knob(knob)(knob, meant) for knob, meant in found.items()}


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "use_gpu": _truth,
    "device_id": _device,
    "gpu_memory_fraction": _number(0.0, 1.0, open_low=True),
    "precision": _precision,
    "tf32": _truth_or_auto,
    "cudnn_benchmark": _truth_or_auto,
    "channels_last": _truth,
    "fused_optimizer": _truth_or_auto,
    "compile_model": _knob("compile"),
    "batch_size": _whole(1, 1 << 20, (None,)),
    "gradient_accumulation_steps": _whole(1, 1 << 16),
    "split_batches": _truth,
    "grad_clip": _number(0.0, 1e9, open_low=True),
    "lr": _number(0.0, 1e6),
    "betas": _betas,
    "eps": _number(0.0, 1.0),
    "weight_decay": _number(0.0, 1e6),
    "num_workers": _whole(0, 1024, ("auto",)),
    "pin_memory": _truth_or_auto,
    "persistent_workers": _truth_or_auto,
    "prefetch_factor": _whole(1, 1024, (None,)),
    "device_prefetch": _truth_or_auto,
    "multi_gpu": _truth,
    "distributed": _one_of(*DISTRIBUTED),
    "knobs": _knobs,
    "model": _table,
}
