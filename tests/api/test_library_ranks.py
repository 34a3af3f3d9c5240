"""Two ranks on gloo, the same loop: DDP and FSDP2 learn what one process learns with the batch of both."""

import math
import os
import socket
import sys
import traceback

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from trainings import Rows, loop

from flatout import TrainingAccelerator
from flatout.api.errors import ConfigurationError, LoaderError, SplitError
from flatout.api.loss_watch import EVERY
from flatout.api.torch_part import torch_is_at_least

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks processes that have torch already")


MODES = ("ddp", "fsdp") if torch_is_at_least(2, 6) else ("ddp",)  # FSDP2 on the processor came with 2.6


def network():
    torch.manual_seed(0)
    blocks = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
    return nn.Sequential(Chain(blocks), nn.Linear(6, 3))


class Chain(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks

    def forward(self, x):
        for block in self.blocks:
            x = torch.tanh(block(x))
        return x


def begun(batch, **config):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    accelerator = TrainingAccelerator({"use_gpu": False, **config})
    return accelerator, accelerator.prepare(model, optimizer, DataLoader(Rows(32), batch_size=batch))


def trained(accelerator, prepared, epochs=2):
    loop(accelerator, *prepared, epochs=epochs)
    model = accelerator.unwrap(prepared[0])
    parts = {name: part.full_tensor() if hasattr(part, "full_tensor") else part for name, part in model.state_dict().items()}
    return {name: part.detach().clone() for name, part in parts.items()}


def of_a_rank(rank, folder):
    found = {}
    for mode in MODES:
        found[mode] = trained(*begun(4, distributed=mode))
        # Half the training, saved, and the rest by an accelerator that knows nothing of it.
        accelerator, prepared = begun(4, distributed=mode)
        trained(accelerator, prepared, epochs=1)
        accelerator.save(folder / f"{mode}.pt", mode=mode)
        other, prepared = begun(4, distributed=mode)
        assert other.load(folder / f"{mode}.pt") == {"mode": mode}
        found[f"{mode}-resumed"] = trained(other, prepared)
    found["accumulated"] = trained(*begun(2, gradient_accumulation_steps=2))
    (folder / f"precision-{rank}").write_text(fallen_back(rank), encoding="ascii")
    accelerator, (_, _, loader) = begun(4)
    with pytest.raises(SplitError, match="ranks"):
        accelerator.train_on(next(iter(loader)), lambda batch: _full())
    with pytest.raises(LoaderError, match="DistributedSampler"):
        accelerator.optimize_data_loading(DataLoader(Rows(8), sampler=[1, 2, 3]))
    torch.save(found, folder / f"rank-{rank}.pt")


def fallen_back(rank):
    """The precision of each rank after the loss of one of them was no number."""
    accelerator, _ = begun(4, precision="bf16")
    assert accelerator.precision == "bf16"
    weight = torch.ones((), requires_grad=True)
    for _ in range(EVERY):
        accelerator.backward(weight * (math.nan if rank else 1.0))
    return accelerator.precision


def _full():
    raise torch.cuda.OutOfMemoryError("CUDA out of memory")


def start(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                os.environ.update({name: str(value) for name, value in place.items()})
                of_a_rank(rank, folder)
                torch.distributed.destroy_process_group()
                code = 0
            except BaseException:  # noqa: BLE001 - a forked child must not run on into pytest
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_two_ranks_learn_what_one_process_learns(tmp_path, capfd):
    assert start(tmp_path) == [0, 0], capfd.readouterr().err
    alone = trained(*begun(8))
    ranks = [torch.load(tmp_path / f"rank-{rank}.pt", weights_only=True) for rank in range(2)]
    assert [(tmp_path / f"precision-{rank}").read_text(encoding="ascii") for rank in range(2)] == ["no", "no"]
    assert set(ranks[0]) == {"accumulated", *MODES, *(f"{mode}-resumed" for mode in MODES)}
    for found in ranks:
        for mode, parts in found.items():
            for name, part in parts.items():
                torch.testing.assert_close(part, alone[name], rtol=1e-4, atol=1e-6, msg=f"{mode} {name}")


def test_variables_that_cannot_be_understood(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ConfigurationError, match="WORLD_SIZE=two"):
        TrainingAccelerator("auto")


def test_multi_gpu_in_one_process_says_how_to_start_several():
    accelerator = TrainingAccelerator({"multi_gpu": True})
    assert "torchrun" in accelerator.config.reasons["distributed"]
