"""Closes every descriptor that it did not open, as daemons do, and opens files of its own under the same numbers."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
files = []
for i, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=4, shuffle=True)):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i == 4:
        os.closerange(3, 256)
        files = [open(f"log-{number}.txt", "w") for number in range(8)]  # noqa: SIM115
    for file in files:
        print(i, repr(loss.item()), file=file, flush=True)
torch.save(model.state_dict(), "model.pt")
