"""Trains, then trains on in a forked child, then here again: each process has its own account."""

import multiprocessing as mp

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(batches):
    for (x,) in DataLoader(TensorDataset(torch.randn(4 * batches, 8)), batch_size=4):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(batches, repr(loss.item()), flush=True)


train(5)
child = mp.get_context("fork").Process(target=train, args=(3,))
child.start()
child.join()
train(4)
torch.save(model.state_dict(), "model.pt")
