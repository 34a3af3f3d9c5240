"""Loader workers by fork, spawn and forkserver; seeded workers that augment with numpy."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        crop = np.random.randint(0, 4)
        x = torch.randn(12)[crop : crop + 8] * random.choice([-1, 1])
        scale = torch.ones(1, requires_grad=True)  # an augmentation that is itself optimised, inside the worker
        tune = torch.optim.SGD([scale], lr=0.1)
        (scale * x.sum()).pow(2).sum().backward()
        tune.step()
        return x * scale.detach(), torch.tensor([index % 2.0])


def seed_worker(_):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def train(method):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(
        Augmented(),
        batch_size=4,
        shuffle=True,
        num_workers=2 if method == "fork" else 1,
        worker_init_fn=seed_worker,
        generator=torch.Generator().manual_seed(0),
        multiprocessing_context=method,
    )
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(method, repr(loss.item()))
    torch.save(model.state_dict(), f"{method}.pt")


if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        train(method)
