"""Saves and restores the whole state of a training; everything is checked before anything is changed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from flatout.api import checkpoint_file, random_state, ranks
from flatout.api.errors import CheckpointError
from flatout.api.torch_part import torch


class Training:
    """What is saved: the parts of one training by their names."""

    def __init__(self, regime: Any, is_sharded: bool) -> None:
        self.models: dict[str, Any] = {}  # without DDP's wrapper
        self.optimizers: dict[str, Any] = {}  # each under its model's name
        self.loaders: dict[str, Any] = {}
        self.regime = regime
        self.is_sharded = is_sharded
        self.registered: dict[str, Any] = {}  # schedulers and whatever has a state_dict

    def save(self, path: Path, counts: dict[str, int], extra: dict[str, Any], is_first: bool) -> None:
        """Every rank calls it; the first writes."""
        state = random_state.captured()
        everyone = [random_state.unflattened(flat, state) for flat in ranks.gathered(random_state.flattened(state))]
        models, optimizers = self._states()
        body = {
            "models": models,
            "optimizers": optimizers,
            "loaders": {name: loader.state_dict() for name, loader in self.loaders.items()},
            "registered": {name: thing.state_dict() for name, thing in self.registered.items()},
            "kinds": {name: type(optimizer).__name__ for name, optimizer in self.optimizers.items()},
            "regime": self.regime.state_dict(),
            "random": everyone,
            "counts": counts,
            "extra": extra,
        }
        try:
            if is_first:
                checkpoint_file.write(path, body)
        finally:
            ranks.barrier()

    def load(self, path: Path, rank: int, world_size: int) -> tuple[dict[str, int], dict[str, Any]]:
        body = checkpoint_file.read(path)
        self._check(body, str(path), world_size)
        self._put_registered_back(body["registered"], str(path))
        self._put_back(body)
        for name, loader in self.loaders.items():
            loader.load_state_dict(body["loaders"][name])
        self.regime.load_state_dict(body["regime"])
        if rank < len(body["random"]):
            random_state.restore(body["random"][rank])
        return body["counts"], body["extra"]

    def put_weights_back(self, path: Path, world_size: int) -> None:
        """Models and optimizers alone, of a training that goes on from where its data is."""
        body = checkpoint_file.read(path)
        self._check(body, str(path), world_size, anywhere=True)
        self._put_back(body)

    def _put_registered_back(self, saved: dict[str, Any], path: str) -> None:
        """First, for these alone check what they are given only when it is given."""
        before = {name: copy.deepcopy(thing.state_dict()) for name, thing in self.registered.items()}
        name = ""
        try:
            for name, thing in self.registered.items():
                thing.load_state_dict(saved[name])
        except Exception as error:
            for other, state in before.items():
                self.registered[other].load_state_dict(state)
            detail = f"{name}: {type(error).__name__}: {error}"[:160]
            raise CheckpointError("library.checkpoint-damaged", path=path, detail=detail) from error

    def _states(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if not self.is_sharded:
            models = {name: dict(model.state_dict()) for name, model in self.models.items()}
            return models, {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        from torch.distributed.checkpoint import state_dict as whole

        options = whole.StateDictOptions(full_state_dict=True, cpu_offload=True)
        models, optimizers = {}, {}
        for name, model in self.models.items():
            models[name] = dict(whole.get_model_state_dict(model, options=options))
            optimizers[name] = whole.get_optimizer_state_dict(model, self.optimizers[name], options=options)
        return models, optimizers

    def _put_back(self, body: dict[str, Any]) -> None:
        if not self.is_sharded:
            for name, model in self.models.items():
                model.load_state_dict(body["models"][name])
                self.optimizers[name].load_state_dict(body["optimizers"][name])
            return
        from torch.distributed.checkpoint import state_dict as whole

        options = whole.StateDictOptions(full_state_dict=True)
        for name, model in self.models.items():
            whole.set_model_state_dict(model, body["models"][name], options=options)
            whole.set_optimizer_state_dict(model, self.optimizers[name], body["optimizers"][name], options=options)

    # -- before anything is changed ---------------------------------------------------------------------------------------

    def _check(self, body: dict[str, Any], path: str, world_size: int, anywhere: bool = False) -> None:
        missing = {"models", "optimizers", "loaders", "registered", "regime", "random", "counts", "extra"} - body.keys()
        if missing:
            raise CheckpointError("library.checkpoint-damaged", path=path, detail=", ".join(sorted(missing)))
        parts = {"models": self.models, "optimizers": self.optimizers, "loaders": self.loaders, "registered": self.registered}
        for part, own in parts.items():
            if set(own) != set(body[part]):
                raise CheckpointError(
                    "library.checkpoint-parts", path=path, part=part, found=_names(body[part]), wanted=_names(own)
                )
        if not anywhere and len(body["random"]) != world_size and any(state["position"] for state in body["loaders"].values()):
            raise CheckpointError("library.checkpoint-ranks", path=path, found=len(body["random"]), wanted=world_size)
        for name, model in self.models.items():
            self._check_model(model, body["models"][name], path)
            kind, own_kind = body.get("kinds", {}).get(name), type(self.optimizers[name]).__name__
            if kind not in (None, own_kind):
                raise CheckpointError("library.checkpoint-parts", path=path, part="optimizers", found=kind, wanted=own_kind)
            saved = [len(group["params"]) for group in body["optimizers"][name]["param_groups"]]
            here = [len(group["params"]) for group in self.optimizers[name].param_groups]
            if saved != here:
                raise CheckpointError(
                    "library.checkpoint-parts", path=path, part="optimizers", found=str(saved), wanted=str(here)
                )

    def _check_model(self, model: Any, saved: dict[str, Any], path: str) -> None:
        own = {name: _shape(part) for name, part in model.state_dict().items()}
        for name in sorted(own.keys() | saved.keys()):
            found, wanted = _shape(saved[name]) if name in saved else None, own.get(name)
            if found != wanted:
                raise CheckpointError(
                    "library.checkpoint-model", path=path, name=name, found=found or "—", wanted=wanted or "—"
                )


def _shape(part: Any) -> str:
    return "x".join(map(str, part.shape)) or "1" if isinstance(part, torch.Tensor) else type(part).__name__


def _names(parts: Any) -> str:
    return ", ".join(sorted(parts)) or "—"
