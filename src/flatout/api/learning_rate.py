"""Learning-rate warm-up, and the rules that change the learning rate with the batch size; only used when asked for."""

from __future__ import annotations

import math
from typing import Any

from flatout.api.errors import ConfigurationError
from flatout.api.refusals import of_kind, whole_number
from flatout.api.torch_part import torch

RULES = ("linear", "sqrt", "none")


def scaled_learning_rate(lr: float, batch: int, new_batch: int, rule: str = "linear") -> float:
    """`linear` for SGD (Goyal et al. 2017), `sqrt` for Adam and its kin (the noise of the gradient), `none` to keep it."""
    if rule not in RULES:
        raise ConfigurationError("library.config-value", name="rule", value=repr(rule), wanted=", ".join(RULES))
    if whole_number("batch", batch) < 1 or whole_number("new_batch", new_batch) < 1:
        raise ConfigurationError("library.config-value", name="batch", value=repr(min(batch, new_batch)), wanted="1 …")
    ratio = new_batch / batch
    return lr * {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[rule]


def warm_up(optimizer: Any, steps: int, then: Any = None) -> Any:
    """A scheduler: from a hundredth of the rate up to it in so many steps, then constant, or as `then` has it."""
    of_kind("optimizer", optimizer, torch.optim.Optimizer, "torch.optim.Optimizer")
    if whole_number("steps", steps) < 1:
        raise ConfigurationError("library.config-value", name="steps", value=repr(steps), wanted="1 …")
    schedulers = torch.optim.lr_scheduler
    rising = schedulers.LinearLR(optimizer, start_factor=0.01, end_factor=1.0, total_iters=steps)
    if then is None:
        return rising
    return schedulers.SequentialLR(optimizer, [rising, then], milestones=[steps])
