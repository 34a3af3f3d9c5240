"""A cap on the device memory that this process may take, set the moment CUDA starts and not before."""

from __future__ import annotations

from typing import Any

from _flatout_agent.core.fault_guard import fault


def cap(torch: Any, fraction: float) -> None:
    def set_on_every_device() -> None:
        try:
            for device in range(torch.cuda.device_count()):
                torch.cuda.set_per_process_memory_fraction(fraction, device)
        except Exception as error:  # it would come out of the script's first use of CUDA
            fault("memory.cap", error)

    # Queued like torch's own settings: starting CUDA here would take memory from scripts that never use it.
    torch.cuda._lazy_call(set_on_every_device)
