"""Reentrant activation checkpointing: the backward pass runs a forward and a backward pass inside itself."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.2)) for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=i < 2)
        return self.head(x)


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for (x,) in DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=4, shuffle=True):
    loss = model(x.requires_grad_()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()))
torch.save(model.state_dict(), "model.pt")
