"""Small trainings that the library's tests share: every source of randomness is in them."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

# The cores are shared, and sums in another order would be other bits.
torch.set_num_threads(1)


class Rows(Dataset):
    """Rows with labels; each fetch adds noise from torch's, numpy's and Python's generator where `noise` is set."""

    def __init__(self, size=48, noise=False, width=6, classes=3):
        own = torch.Generator().manual_seed(1)
        self.x = torch.randn(size, width, generator=own)
        self.y = torch.randint(0, classes, (size,), generator=own)
        self.noise = noise

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        if self.noise:
            import numpy

            x = x + 0.1 * torch.randn_like(x) + 0.1 * float(numpy.random.rand()) + 0.1 * random.random()
        return x, self.y[index]


def seed(number=0):
    import numpy

    torch.manual_seed(number)
    numpy.random.seed(number)
    random.seed(number)


def network(dropout=0.3, width=6):
    return nn.Sequential(nn.Linear(width, 12), nn.ReLU(), nn.Dropout(dropout), nn.Linear(12, 3))


def training(number=0, *, noise=True, batch=8, size=48, dropout=0.3, optimizer=torch.optim.Adam):
    """(model, optimizer, loader), the same for the same number."""
    seed(number)
    model = network(dropout)
    return model, optimizer(model.parameters(), lr=0.01), DataLoader(Rows(size, noise), batch_size=batch, shuffle=True)


LOSS = nn.CrossEntropyLoss()


def loop(accelerator, model, optimizer, loader, epochs=1, each=None):
    for _ in range(loader.epoch, epochs):
        for x, y in loader:
            with accelerator.autocast():
                loss = LOSS(model(x), y)
            accelerator.backward(loss)
            accelerator.step(optimizer)
            if each is not None:
                each()


def by_hand(model, optimizer, loader, epochs=1):
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            LOSS(model(x), y).backward()
            optimizer.step()


def weights(model):
    return {name: part.detach().clone() for name, part in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
