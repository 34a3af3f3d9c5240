"""A profile's values hold where they were measured: on another torch, driver or card they are left out, unless trusted."""

import logging

import pytest
import torch

from flatout import TrainingAccelerator
from flatout.api import profile_check
from flatout.knobs.profile import Fingerprint

KNOBS = '[knobs]\nprecision = "bf16"\ngc_policy = true\n'


def profile(tmp_path, **fingerprint):
    lines = "".join(f'{name} = "{value}"\n' for name, value in fingerprint.items())
    path = tmp_path / "flatout.toml"
    path.write_text(f"{KNOBS}[fingerprint]\n{lines}", encoding="utf-8")
    return path


def test_measured_here_it_is_put_on(tmp_path):
    present = profile_check.here()
    assert present.torch == torch.__version__
    accelerator = TrainingAccelerator(profile(tmp_path, torch=present.torch, card=present.card, driver=present.driver))
    assert accelerator.config.precision == "bf16"
    assert accelerator.config.wanted.knobs == {"gc_policy": "on"}
    assert "profile" not in accelerator.config.reasons


@pytest.mark.parametrize(("part", "other"), [("torch", "1.0.0+cu99"), ("card", "NVIDIA Nothing"), ("driver", "100.1")])
def test_measured_elsewhere_it_is_left_out_with_both_values(tmp_path, caplog, part, other):
    path = profile(tmp_path, **{part: other})
    with caplog.at_level(logging.WARNING, logger="flatout"):
        accelerator = TrainingAccelerator(str(path))
    assert accelerator.config.precision == "no"
    assert accelerator.config.wanted.knobs == {}
    (said,) = [text for text in caplog.messages if "flatout.toml" in text]
    assert other in said
    assert (getattr(profile_check.here(), part) or "unknown") in said
    assert "trust_profile" in said
    assert accelerator.notes == [said]
    assert accelerator.config.reasons["profile"] == said


def test_trusted_it_is_put_on_and_the_difference_is_still_said(tmp_path):
    accelerator = TrainingAccelerator()
    config = accelerator.setup_gpu_training(profile(tmp_path, torch="1.0.0", card="NVIDIA Nothing"), trust_profile=True)
    assert config.precision == "bf16"
    (said,) = accelerator.notes
    assert "1.0.0" in said
    assert torch.__version__ in said
    assert "NVIDIA Nothing" in said


def test_what_was_not_recorded_is_not_compared(tmp_path):
    path = tmp_path / "flatout.toml"
    path.write_text(KNOBS, encoding="utf-8")
    assert TrainingAccelerator(path).config.precision == "bf16"
    written = profile(tmp_path, script="0" * 64)  # the script's text: the profile is named in the training's own code
    assert TrainingAccelerator(written).config.precision == "bf16"
    assert profile_check.here() == Fingerprint(
        torch=torch.__version__, card=profile_check.here().card, driver=profile_check.here().driver
    )
