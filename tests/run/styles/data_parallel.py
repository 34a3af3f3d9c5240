"""nn.DataParallel without a GPU: it just wraps."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.DataParallel(nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for (x,) in DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=4, shuffle=True):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()))
torch.save(model.module.state_dict(), "model.pt")
