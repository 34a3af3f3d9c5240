"""Siamese, in nn.DataParallel: one model called three times a step, and an auxiliary loss with its own backward pass."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
tower = nn.DataParallel(
    nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
)  # on the CPU it just wraps
optimizer = torch.optim.SGD(tower.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(48, 8), torch.randn(48, 8), torch.randn(48, 8))
for anchor, positive, negative in DataLoader(data, batch_size=6, shuffle=True):
    loss = nn.functional.triplet_margin_loss(tower(anchor), tower(positive), tower(negative))
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    (0.1 * tower(anchor).pow(2).mean()).backward()
    optimizer.step()
    print(repr(loss.item()))
torch.save(tower.module.state_dict(), "model.pt")
