"""One optimizer per parameter, stepped inside the backward pass as soon as the gradient is there."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
optimizers = {p: torch.optim.AdamW([p], lr=1e-2) for p in model.parameters()}


def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(30, 8)), batch_size=4, shuffle=True):
        loss = model(x).pow(2).mean()
        loss.backward()
    print(epoch, repr(loss.item()))
torch.save(model.state_dict(), "model.pt")
