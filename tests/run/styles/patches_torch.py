"""Patches torch itself: the loader, tensors, the backward pass, save; and puts some of it back."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

seen = []
original_iter, original_item = DataLoader.__iter__, torch.Tensor.item
original_backward, original_save = torch.Tensor.backward, torch.save


def noisy_iter(self):
    seen.append("iter")
    return original_iter(self)


def noisy_item(self):
    seen.append("item")
    return original_item(self)


def noisy_backward(self, *args, **kwargs):
    seen.append("backward")
    return original_backward(self, *args, **kwargs)


def noisy_save(obj, f, *args, **kwargs):
    seen.append("save")
    return original_save(obj, f, *args, **kwargs)


class CountingLoader(DataLoader):
    def __init__(self, *args, **kwargs):
        seen.append("loader")
        super().__init__(*args, **kwargs)


DataLoader.__iter__, torch.Tensor.item, torch.Tensor.backward, torch.save = noisy_iter, noisy_item, noisy_backward, noisy_save
torch.utils.data.DataLoader = CountingLoader
torch.Tensor.mine = lambda self: self.sum()

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = torch.utils.data.DataLoader(TensorDataset(torch.randn(24, 8)), batch_size=4, shuffle=True)
for epoch in range(2):
    for (x,) in loader:
        loss = model(x).pow(2).mine()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < 0:
            raise AssertionError
    torch.save(model.state_dict(), "model.pt")
    print(epoch, seen)
    seen.clear()
    DataLoader.__iter__, torch.Tensor.item, torch.Tensor.backward, torch.save = (
        original_iter,
        original_item,
        original_backward,
        original_save,
    )
print(torch.Tensor.item is original_item, torch.Tensor.item == original_item, torch.save is original_save)
