"""A scripted module, trained, saved as TorchScript and loaded again; and a traced one."""

import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")  # TorchScript is deprecated from 2.10 on


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inner(x).relu()
        if h.sum().item() > 1e9:
            h = h * 0
        return self.outer(h.to(torch.float32))


torch.manual_seed(0)
model = torch.jit.script(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for (x,) in DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=4, shuffle=True):
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(repr(loss.item()))
print(model.code)
traced = torch.jit.trace(model, torch.ones(2, 8))
model.save("scripted.ts")
again = torch.jit.load("scripted.ts")
print(torch.equal(again(torch.ones(2, 8)), traced(torch.ones(2, 8))))
torch.save(model.state_dict(), "model.pt")
