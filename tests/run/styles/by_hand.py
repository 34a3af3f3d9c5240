"""No optimizer: the tutorial's update by hand under no_grad."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
w, b = torch.randn(8, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
for epoch in range(2):
    for x, y in DataLoader(TensorDataset(torch.randn(24, 8), torch.randn(24, 1)), batch_size=4, shuffle=True):
        loss = (x @ w + b - y).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for p in (w, b):
                p -= 0.05 * p.grad
                p.grad.zero_()
    print(epoch, repr(loss.item()))
torch.save({"w": w, "b": b}, "model.pt")
