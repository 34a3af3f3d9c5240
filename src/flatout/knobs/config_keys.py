"""The names that training configurations use for known keys, for the doctor and for `tune --config`.

A new spelling is a word here. What nobody else calls so is told by the user: `--key batch_size=train.bs`.
"""

from __future__ import annotations

from enum import StrEnum

from flatout.base.records import Struct
from flatout.knobs.model import Numerics


class Kind(StrEnum):
    SWITCH = "switch"  # true or false
    PRECISION = "precision"  # true or false, or a name: bf16, 16-mixed, float32
    COMPILE = "compile"  # true or false, or a mode
    NUMBER = "number"
    DECIMAL = "decimal"  # written only with another batch size, by a rule that was asked for
    OTHER = "other"  # understood, never written


class Key(Struct, frozen=True, kw_only=True):
    name: str
    aliases: tuple[str, ...] = ()
    kind: Kind = Kind.OTHER
    knob: str = ""  # the knob that does the same from outside
    numerics: Numerics = Numerics.TRAINING  # of changing it
    beside: tuple[str, ...] = ()  # where it is put if it is missing; nowhere if empty

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


KEYS: tuple[Key, ...] = (
    Key(name="use_gpu", aliases=("use_cuda",), kind=Kind.SWITCH, numerics=Numerics.TOLERANCE),
    Key(name="device_id", aliases=("gpu_id", "device")),
    Key(
        name="use_amp",
        aliases=("use_mixed_precision", "mixed_precision", "amp", "fp16", "bf16", "precision"),
        kind=Kind.PRECISION,
        knob="precision",
        numerics=Numerics.TOLERANCE,
        beside=("compile_model", "batch_size"),
    ),
    Key(
        name="compile_model",
        aliases=("torch_compile", "use_compile", "compile"),
        kind=Kind.COMPILE,
        knob="compile",
        numerics=Numerics.TOLERANCE,
        beside=("use_amp", "batch_size"),
    ),
    Key(name="multi_gpu"),
    Key(
        name="batch_size",
        aliases=("train_batch_size", "per_device_train_batch_size"),
        kind=Kind.NUMBER,
        knob="batch_size",
    ),
    Key(name="gradient_accumulation_steps", aliases=("accumulate_grad_batches", "accumulation_steps")),
    Key(name="lr", aliases=("learning_rate",), kind=Kind.DECIMAL),
    Key(name="betas"),
    Key(name="eps"),
    Key(name="weight_decay"),
    Key(name="grad_clip", aliases=("max_grad_norm", "gradient_clip_val")),
    Key(
        name="num_workers",
        aliases=("dataloader_num_workers", "workers"),
        kind=Kind.NUMBER,
        knob="workers",
        numerics=Numerics.RESAMPLED,
        beside=("batch_size",),
    ),
    Key(
        name="pin_memory",
        aliases=("dataloader_pin_memory",),
        kind=Kind.SWITCH,
        knob="pin_memory",
        numerics=Numerics.EXACT,
        beside=("num_workers", "batch_size"),
    ),
    Key(
        name="persistent_workers",
        aliases=("dataloader_persistent_workers",),
        kind=Kind.SWITCH,
        knob="persistent_workers",
        numerics=Numerics.RESAMPLED,
        beside=("num_workers", "batch_size"),
    ),
    Key(
        name="prefetch_factor",
        aliases=("dataloader_prefetch_factor",),
        kind=Kind.NUMBER,
        knob="prefetch_factor",
        numerics=Numerics.EXACT,
        beside=("num_workers", "batch_size"),
    ),
    Key(name="gpu_memory_fraction", aliases=("memory_fraction",)),
    Key(name="base_channels"),
    Key(name="num_blocks"),
    Key(name="patch_size"),
    Key(name="use_perceptual"),
)

BY_NAME = {key.name: key for key in KEYS}


def plain(name: str) -> str:
    return name.lower().replace("-", "_")


def find(name: str) -> Key | None:
    """The key of which this is a spelling."""
    return next((key for key in KEYS if plain(name) in key.names), None)


def of_knob(knob: str) -> Key | None:
    return next((key for key in KEYS if key.knob == knob), None)
