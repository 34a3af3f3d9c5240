"""Evaluates and saves at the top of the loop, with the batch to train on already in hand."""

import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
train, valid = TensorDataset(torch.randn(48, 8)), TensorDataset(torch.randn(60, 8))
train_loader, valid_loader = DataLoader(train, batch_size=4, shuffle=True), DataLoader(valid, batch_size=10)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


@torch.no_grad()
def evaluate(batches):
    model.eval()
    total = sum(model(x).pow(2).mean().item() for (x,) in batches)
    model.train()
    return total


for i, (x,) in enumerate(train_loader):
    if i % 4 == 0:
        print(i, repr(evaluate(valid_loader)), repr(evaluate(itertools.islice(valid_loader, 3))))
        torch.save(model.state_dict(), f"model-{i}.pt")
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(repr(evaluate(train_loader)))
torch.save(model.state_dict(), "model.pt")
