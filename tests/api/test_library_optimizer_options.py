"""lr, betas, eps and weight_decay of a configuration: an optimizer is made with them, and one that has others is named."""

from pathlib import Path

import pytest
import torch
from torch import nn
from trainings import LOSS, Rows

from flatout import TrainingAccelerator
from flatout.api.errors import ConfigurationError, ModelError
from flatout.api.refusals import NoParametersError

CONFIGS = Path(__file__).resolve().parents[2] / "examples" / "configs"


def accelerator(**config):
    return TrainingAccelerator({"use_gpu": False, **config})


def test_a_file_decides_and_arguments_win():
    begun = TrainingAccelerator(CONFIGS / "training_config.yaml")
    model = nn.Linear(6, 3)
    made = begun.make_optimizer(model)
    assert type(made) is torch.optim.AdamW
    (group,) = made.param_groups
    assert (group["lr"], group["betas"], group["weight_decay"]) == (3e-4, (0.9, 0.999), 0.05)
    (group,) = begun.make_optimizer(model, torch.optim.Adam, lr=0.5, weight_decay=None, amsgrad=True).param_groups
    assert (group["lr"], group["weight_decay"], group["amsgrad"]) == (0.5, 0, True)  # Adam's own


def test_what_nobody_says_is_the_optimizers_own():
    (group,) = accelerator().make_optimizer(nn.Linear(6, 3)).param_groups
    (own,) = torch.optim.AdamW(nn.Linear(6, 3).parameters()).param_groups
    assert {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")} == {
        name: own[name] for name in ("lr", "betas", "eps", "weight_decay")
    }


def test_it_trains_what_is_to_be_trained():
    begun = accelerator(lr=0.1)
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    made = begun.make_optimizer(model, torch.optim.SGD, momentum=0.9)
    assert [parameter.shape for parameter in made.param_groups[0]["params"]] == [(3, 6), (3,)]
    model, made = begun.prepare(model, made)
    before, data = model[1].weight.detach().clone(), Rows(16)
    begun.backward(LOSS(model(data.x), data.y))
    begun.step(made)
    assert not torch.equal(before, model[1].weight)
    assert not any("configuration" in note for note in begun.notes)


def test_values_that_cannot_be_taken():
    model = nn.Linear(6, 3)
    begun = accelerator(betas=[0.8, 0.9])
    with pytest.raises(ConfigurationError, match="SGD does not accept betas, which the configuration sets"):
        begun.make_optimizer(model, torch.optim.SGD)
    assert "betas" not in begun.make_optimizer(model, torch.optim.SGD, betas=None).defaults
    with pytest.raises(ModelError, match=r"kind must be an optimizer class .* but it is str"):
        begun.make_optimizer(model, "adam")
    with pytest.raises(ModelError, match=r"model must be .* but it is a list"):
        begun.make_optimizer([1])
    with pytest.raises(NoParametersError, match="ReLU has no parameters"):
        begun.make_optimizer(nn.ReLU())


def test_an_optimizer_with_other_values_is_named_and_kept():
    begun = accelerator(lr=0.1, betas=[0.9, 0.999], weight_decay=0.0)
    model = nn.Linear(6, 3)
    _, optimizer = begun.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01))
    assert optimizer.param_groups[0]["lr"] == 0.01
    (said,) = [note for note in begun.notes if "configuration" in note]
    assert "lr is 0.1" in said
    assert "0.01" in said
