"""Starts itself again with `python -I`, where nothing of the environment counts."""

import subprocess
import sys

if "-I" not in sys.argv:
    ended = subprocess.run([sys.executable, "-I", __file__, "-I"], check=False)
    sys.exit(ended.returncode)

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(5):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(repr(loss.item()), "_flatout_agent" in sys.modules, flush=True)
torch.save(model.state_dict(), "model.pt")
sys.exit(7)
