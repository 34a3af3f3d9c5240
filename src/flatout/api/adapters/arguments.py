"""Which argument of which framework corresponds to a knob; a knob without one is listed with its reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.api import refusals
from flatout.api.errors import ConfigurationError
from flatout.base.errors import UnknownNameError, UsageError
from flatout.base.words import Words, choose_language
from flatout.knobs import profile_file, values
from flatout.knobs.catalogue import RECORDED
from flatout.knobs.profile import Profile

Source = Profile | Mapping[str, Any] | str | os.PathLike[str]

LOADER = {
    "workers": "num_workers",
    "persistent_workers": "persistent_workers",
    "prefetch_factor": "prefetch_factor",
    "pin_memory": "pin_memory",
    "batch_size": "batch_size",
}

LIGHTNING_PRECISION = {"bf16": "bf16-mixed", "fp16": "16-mixed"}


@dataclass(frozen=True)
class LeftOut:
    """A knob of the profile that is not among the arguments, and what to do instead."""

    knob: str
    value: str
    code: str  # `adapter.<code>` in the catalogue
    reason: str


class Arguments(dict[str, Any]):
    """Keyword arguments: `Trainer(**arguments)`. `left_out` holds what they cannot say."""

    def __init__(self) -> None:
        super().__init__()
        self.left_out: list[LeftOut] = []


# How a framework takes a knob's value: the arguments, or a code why not.
Way = Callable[[str], dict[str, Any] | str]


def loader_arguments(profile: Source, *, language: str | None = None, trust_profile: bool = False) -> Arguments:
    """For `torch.utils.data.DataLoader`."""

    def way(name: str) -> Way:
        return lambda value: {LOADER[name]: _plain(value)}

    return _said(profile, {name: way(name) for name in LOADER}, "not-the-loaders", language, trust_profile)


def lightning_arguments(profile: Source, *, language: str | None = None, trust_profile: bool = False) -> Arguments:
    """For `lightning.pytorch.Trainer`."""
    ways: dict[str, Way] = {
        "precision": lambda value: _precision(value, lambda dtype: {"precision": LIGHTNING_PRECISION[dtype]}),
        "cudnn_benchmark": lambda _: {"benchmark": True},
        "fused_optimizer": lambda _: "own-optimizer",
        "compile": lambda value: "own-graphs" if value == RECORDED else "own-compile",
        "non_blocking": lambda _: "does-so-itself",
        **dict.fromkeys(LOADER, _to_the_loader),
    }
    return _said(profile, ways, "no-argument", language, trust_profile)


def transformers_arguments(profile: Source, *, language: str | None = None, trust_profile: bool = False) -> Arguments:
    """For `transformers.TrainingArguments`."""
    ways: dict[str, Way] = {
        "precision": lambda value: _precision(value, lambda dtype: {dtype: True}),
        "tf32": lambda _: {"tf32": True},
        "fused_optimizer": lambda _: {"optim": "adamw_torch_fused"},
        "compile": _compiled_by_transformers,
        "workers": lambda value: {"dataloader_num_workers": int(value)},
        "persistent_workers": lambda _: {"dataloader_persistent_workers": True},
        "prefetch_factor": lambda value: {"dataloader_prefetch_factor": int(value)},
        "pin_memory": lambda _: {"dataloader_pin_memory": True},
        "non_blocking": lambda _: {"accelerator_config": {"non_blocking": True}},
        "checkpointing": lambda _: {"gradient_checkpointing": True},
        "batch_size": lambda value: {"per_device_train_batch_size": int(value)},
    }
    return _said(profile, ways, "no-argument", language, trust_profile)


def accelerate_arguments(profile: Source, *, language: str | None = None, trust_profile: bool = False) -> Arguments:
    """For `accelerate.Accelerator`; some are objects of that package, which is imported for them."""
    ways: dict[str, Way] = {
        "precision": lambda value: _precision(value, lambda dtype: {"mixed_precision": dtype}),
        "compile": _compiled_by_accelerate,
        "non_blocking": _not_blocking_in_accelerate,
        "fused_optimizer": lambda _: "own-optimizer",
        **dict.fromkeys(LOADER, _to_the_loader),
    }
    return _said(profile, ways, "no-argument", language, trust_profile)


def profile_of(profile: Source) -> Profile:
    """The record, read from its file, or made of a plain dict of knobs."""
    if isinstance(profile, Profile):
        return profile
    if not isinstance(profile, str | os.PathLike | Mapping):
        raise refusals.ArgumentTypeError(
            "error.argument-type", argument="profile", wanted="Profile | path | dict", found=type(profile).__name__
        )
    try:
        return Profile(knobs=_of_a_dict(profile)) if isinstance(profile, Mapping) else profile_file.read(Path(profile))
    except UnknownNameError:
        raise
    except UsageError as error:
        raise ConfigurationError(error.key, **error.params) from error


def _of_a_dict(profile: Mapping[str, Any]) -> dict[str, str]:
    meant = {}
    for name, written in profile.items():
        knob = values.known(str(name), "profile")
        meant[knob.name] = values.meant(knob, written, "profile")
    values.check_together(meant, "profile")
    return meant


def _said(profile: Source, ways: Mapping[str, Way], otherwise: str, language: str | None, trust_profile: bool) -> Arguments:
    words, said, source = Words(choose_language(language)), Arguments(), profile_of(profile)
    elsewhere = "" if trust_profile else _differences(source, words)
    for name, value in source.knobs.items():
        if value in values.UNTOUCHED:
            continue  # as the script has it: nothing to say
        answer: dict[str, Any] | str = "measured-elsewhere"
        if not elsewhere:
            answer = ways[name](value) if name in ways else otherwise
        if isinstance(answer, str):
            reason = words(f"adapter.{answer}", knob=name, value=value, differences=elsewhere)
            said.left_out.append(LeftOut(name, value, answer, reason))
        else:
            said.update(answer)
    return said


def _differences(profile: Profile, words: Words) -> str:
    """Where this is not what the profile was measured on; torch is asked only by one that says where that was."""
    found = profile.fingerprint
    if not (found.torch or found.driver or found.card):
        return ""
    from flatout.api import profile_check

    return profile_check.told(profile_check.differing(profile), words)


def _to_the_loader(value: str) -> str:
    del value
    return "for-the-loader"


def _precision(value: str, said: Callable[[str], dict[str, Any]]) -> dict[str, Any] | str:
    if value != "auto":
        return said(value)
    import torch

    if not torch.cuda.is_available():
        return "auto-without-gpu"
    return said("bf16" if torch.cuda.get_device_capability()[0] >= 8 else "fp16")


def _compiled_by_transformers(value: str) -> dict[str, Any] | str:
    if value == RECORDED:
        return "own-graphs"
    return {"torch_compile": True, **({} if value == "default" else {"torch_compile_mode": value})}


def _compiled_by_accelerate(value: str) -> dict[str, Any] | str:
    if value == RECORDED:
        return "own-graphs"
    from flatout.api.adapters.accelerate import compiling

    return {"dynamo_plugin": compiling(value)}


def _not_blocking_in_accelerate(value: str) -> dict[str, Any]:
    del value
    from flatout.api.adapters.accelerate import not_blocking

    return {"dataloader_config": not_blocking()}


def _plain(value: str) -> int | bool:
    return int(value) if value.isdecimal() else value == "on"
