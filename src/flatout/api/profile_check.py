"""Checks whether a profile was measured on this torch, driver and GPU.

The script is not compared, as `flatout run` does: here the profile is named in the training's own code.
"""

from __future__ import annotations

from pathlib import Path

from flatout.api import config_source, resolving
from flatout.api.config_source import ConfigSource
from flatout.api.notes import sentence
from flatout.api.torch_part import torch
from flatout.api.training_config import TrainingConfig
from flatout.base.words import Words, choose_language
from flatout.knobs import profile
from flatout.knobs.profile import Difference, Fingerprint, Profile
from flatout.machine import nvml

CPU = "CPU"  # as `flatout tune` writes it where there is no card


def read(source: ConfigSource, trust_profile: bool) -> tuple[TrainingConfig, str]:
    """What is wanted, and a sentence where the source is a profile that was made for something else."""
    if not config_source.is_profile(source):
        return config_source.read(source), ""
    found = config_source.read_profile(Path(str(source)))
    elsewhere = told(differing(found), Words(choose_language(None)))
    if not elsewhere or trust_profile:
        wanted = config_source.from_profile(found.knobs)
        return wanted, sentence("profile.other", path=str(source), differences=elsewhere) if elsewhere else ""
    return TrainingConfig(), sentence("library.profile-left-out", path=str(source), differences=elsewhere)


def differing(found: Profile) -> list[Difference]:
    return profile.differences(_without_script(found.fingerprint), here())


def told(found: list[Difference], words: Words) -> str:
    """Both values of each."""
    return words("run.semicolon").join(_said(each, words) for each in found)


def here() -> Fingerprint:
    driver = nvml.driver().version
    return Fingerprint(torch=str(torch.__version__), driver=driver if isinstance(driver, str) else "", card=_card())


def _card() -> str:
    device = resolving.device_of(TrainingConfig())
    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else CPU


def _without_script(recorded: Fingerprint) -> Fingerprint:
    return Fingerprint(torch=recorded.torch, driver=recorded.driver, card=recorded.card)


def _said(found: Difference, words: Words) -> str:
    present = found.here or words("missing.unknown")
    return words("profile.difference", part=words(f"profile.{found.part}"), recorded=found.recorded, here=present)
