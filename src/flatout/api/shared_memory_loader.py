"""A DataLoader whose forked workers send batches through shared memory instead of one file per tensor."""

from __future__ import annotations

from functools import cache
from typing import Any

from _flatout_agent.knobs.loader.shared_memory_transport import carrying
from _flatout_agent.knobs.loader.worker_limits import start_method
from flatout.api.torch_part import torch


@cache
def carrying_loader() -> Any:
    class DataLoader(torch.utils.data.DataLoader):  # type: ignore[misc,name-defined,unused-ignore]
        def _get_iterator(self) -> Any:
            if not self.num_workers:
                return super()._get_iterator()
            return carrying(torch, self, super()._get_iterator, start_method(self))

    return DataLoader
