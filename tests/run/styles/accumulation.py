"""Four small batches to one step, the rest of the epoch to a last one."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(torch.randn(42, 8), torch.randn(42, 1)), batch_size=4, shuffle=True)  # 11 batches, last of 2
for epoch in range(2):
    for i, (x, y) in enumerate(loader, 1):
        loss = nn.functional.mse_loss(model(x), y) / 4
        loss.backward()
        if i % 4 == 0 or i == len(loader):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    print(epoch, repr(loss.item()))
torch.save(model.state_dict(), "model.pt")
