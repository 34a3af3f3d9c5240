"""lr, betas, eps and weight_decay of the configuration: creates optimizers with them, warns where an optimizer differs."""

from __future__ import annotations

import inspect
import math
from typing import Any

from flatout.api.errors import ConfigurationError, ModelError
from flatout.api.notes import Notes
from flatout.api.refusals import NoParametersError
from flatout.api.torch_part import torch
from flatout.api.training_config import TrainingConfig

NAMES = ("lr", "betas", "eps", "weight_decay")


def made(model: Any, kind: Any, wanted: TrainingConfig, options: dict[str, Any]) -> Any:
    """`options` win; what neither says is the optimizer's own. A configured value that it does not take is refused."""
    if not isinstance(model, torch.nn.Module):
        raise ModelError("library.model-type", found=type(model).__name__)
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise ModelError("library.optimizer-kind", found=getattr(kind, "__name__", type(kind).__name__))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise NoParametersError("library.model-empty", name=type(model).__name__)
    given = {name: value for name in NAMES if (value := getattr(wanted, name)) is not None and name not in options}
    taken = inspect.signature(kind).parameters
    for name in given:
        if name not in taken and not any(each.kind is each.VAR_KEYWORD for each in taken.values()):
            raise ConfigurationError("library.optimizer-option", name=name, kind=kind.__name__)
    return kind(parameters, **given, **{name: value for name, value in options.items() if value is not None})


def tell_differences(optimizer: Any, wanted: TrainingConfig, notes: Notes) -> None:
    """An optimizer of the user's own stays as it is: where it has other values than the configuration, both are said."""
    for name in NAMES:
        asked = getattr(wanted, name)
        has = [group[name] for group in optimizer.param_groups if name in group]
        if asked is not None and has and not any(_are_close(each, asked) for each in has):
            notes.tell("library.optimizer-differs", name=name, wanted=asked, found=has[0])


def _are_close(one: Any, other: Any) -> bool:
    pairs = zip(one, other, strict=False) if isinstance(other, tuple) else [(one, other)]
    return all(math.isclose(float(a), float(b), rel_tol=1e-9) for a, b in pairs)
