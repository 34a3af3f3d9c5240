"""Applies the agent's knobs to a model and its optimizer, with the same code as `flatout run`."""

from __future__ import annotations

from typing import Any

from _flatout_agent.knobs.knob import Outcome, Scene
from _flatout_agent.knobs.registry import KNOBS
from _flatout_agent.knobs.switchboard import Switchboard
from flatout.api.notes import Notes, sentence
from flatout.api.torch_part import torch
from flatout.api.training_config import AcceleratedConfig


class KnobsOn:
    def __init__(self, config: AcceleratedConfig, device: Any) -> None:
        self._scene = Scene(torch, device.type)
        self._board = Switchboard(self._scene, KNOBS)
        switches = {name: getattr(config, name) for name in ("tf32", "cudnn_benchmark", "channels_last", "fused_optimizer")}
        self._wanted = {**config.wanted.knobs, **switches, "compile": config.compile_model}

    def put_on(self, model: Any, optimizer: Any, notes: Notes) -> None:
        """Every model of the training so far; what could not be done is said."""
        self._scene.found(roots=[model], optimizers=[optimizer])
        self._board.clear()
        for name, outcome in self._board.set(dict(self._wanted)).items():
            if outcome.status == "refused":
                notes.warn("library.knob-refused", name=name, why=reason(outcome))

    def seen(self) -> dict[str, str]:
        """What was seen of each knob that is on."""
        return {name: outcome.status if outcome else reason(outcome) for name, outcome in self._board.proofs().items()}


def reason(outcome: Outcome) -> str:
    try:
        return sentence(f"outcome.{outcome.code}", **outcome.details)
    except (KeyError, IndexError):
        return outcome.code
