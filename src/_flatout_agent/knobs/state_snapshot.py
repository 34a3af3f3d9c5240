"""The random state and a module's buffers, kept for the few calls that may have to be undone."""

from __future__ import annotations

from typing import Any


class Snapshot:
    """Batch statistics and draws of a failed call would otherwise stay, and the plain call would draw others."""

    def __init__(self, torch: Any, module: Any, devices: list[int] | None = None) -> None:
        """`devices`: the cards whose generators are kept; every card where nothing is said."""
        self._torch = torch
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
        self._cpu = torch.get_rng_state()
        cuda = torch.cuda
        if devices is None:
            devices = list(range(cuda.device_count())) if cuda.is_initialized() else []
        self._devices = devices
        self.cuda_states = [cuda.get_rng_state(device) for device in self._devices]

    def restore(self) -> None:
        torch = self._torch
        for buffer, before in self._buffers:
            buffer.data.copy_(before)  # a graph that waits for its backward pass need not hear of it: it is what it was
        torch.set_rng_state(self._cpu)
        for device, state in zip(self._devices, self.cuda_states):  # noqa: B905
            torch.cuda.set_rng_state(state, device)
