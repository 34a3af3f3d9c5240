"""A training as a user writes it, for torchrun: the same lines for one process, DDP and FSDP2.

torchrun --nproc-per-node=2 ranked_training.py FOLDER ddp
"""

import json
import math
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader
from trainings import LOSS, Rows, loop

from flatout import TrainingAccelerator
from flatout.api.loss_watch import EVERY

# What each rank sees in validation: the first would take the third epoch, the second the first, their mean the second.
PLANTED = ((0.9, 0.3, 0.1), (0.2, 0.5, 2.0))


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.leave = nn.Linear(6, 3)

    def forward(self, x):
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.leave(x)


def begun(mode, batch, precision="no"):
    torch.manual_seed(0)
    model = Chain()
    accelerator = TrainingAccelerator({"use_gpu": False, "distributed": mode, "precision": precision})
    return accelerator, model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), DataLoader(Rows(32), batch_size=batch)


def looped(mode, batch):
    accelerator, model, optimizer, loader = begun(mode, batch)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    loop(accelerator, model, optimizer, loader, epochs=2)
    parts = accelerator.unwrap(model).state_dict()
    whole = {name: part.full_tensor() if hasattr(part, "full_tensor") else part for name, part in parts.items()}
    return {name: part.tolist() for name, part in whole.items()}


def fitted(mode, batch, folder):
    accelerator, model, optimizer, loader = begun(mode, batch)
    planted, validated = PLANTED[accelerator.config.rank], []

    def loss(model, batch):
        found = LOSS(model(batch[0]), batch[1])
        if not torch.is_grad_enabled():
            found = found * 0 + planted[len(validated) // 4]
            validated.append(found)
        return found

    validation = DataLoader(Rows(32), batch_size=batch)
    paths = {"checkpoint": folder / f"{mode}-last.pt", "best": folder / f"{mode}-best.pt"}
    result = accelerator.fit(model, optimizer, loader, loss, epochs=3, validation=validation, **paths)
    return {"losses": result.losses, "validation": result.validation_losses, "best": result.best_epoch}


def recovered(mode, batch, folder):
    """In bf16, and the last rank's loss is no number once: gradients are summed, so everybody's weights are none either."""
    accelerator, model, optimizer, loader = begun(mode, batch, precision="bf16")
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    last = accelerator.config.rank == accelerator.config.world_size - 1
    while accelerator.steps < 2 * EVERY:
        for x, y in loader:
            if accelerator.steps == 4:
                accelerator.save(folder / f"{mode}-good.pt")
            with accelerator.autocast():
                loss = LOSS(model(x), y)
            accelerator.backward(loss * math.nan if last and accelerator.steps == 6 else loss)
            accelerator.step(optimizer)
    with accelerator.evaluate(model):
        ended = float(LOSS(model(loader.dataset.x).float(), loader.dataset.y))
    notes = [note for note in accelerator.notes if "turned off" in note]
    return {"precision": accelerator.precision, "ended": ended, "notes": notes}


if __name__ == "__main__":
    folder, mode = Path(sys.argv[1]), sys.argv[2]
    place = TrainingAccelerator({"use_gpu": False}).config
    batch = 8 // place.world_size
    told = {"world": place.world_size, "weights": looped(mode, batch), **fitted(mode, batch, folder)}
    told["recovered"] = recovered(mode, batch, folder)
    (folder / f"{mode}-{place.rank}.json").write_text(json.dumps(told), encoding="ascii")
    if place.world_size > 1:
        torch.distributed.destroy_process_group()
