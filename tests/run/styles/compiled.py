"""The user's own torch.compile: the same graphs, and a checkpoint of the compiled module."""

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.outer(nn.functional.dropout(self.inner(x.to(torch.float32)).relu(), 0.1, self.training))


torch.manual_seed(0)
model = torch.compile(Net(), backend="aot_eager")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(torch.randn(30, 8)), batch_size=4, shuffle=True)  # the last batch is smaller: a recompile
for epoch in range(2):
    for (x,) in loader:
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(epoch, repr(loss.item()))
print(dict(counters["stats"]), dict(counters["graph_break"]))
torch.save(model.state_dict(), "model.pt")
