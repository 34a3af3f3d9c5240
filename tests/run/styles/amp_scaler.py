"""Autocast and a GradScaler on the CPU; two of the steps meet an infinite gradient and are skipped."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
loader = DataLoader(TensorDataset(torch.randn(40, 8), torch.randn(40, 1)), batch_size=4, shuffle=True)
for i, (x, y) in enumerate(loader):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(x).float(), y)
    optimizer.zero_grad()
    scaler.scale(loss * (float("inf") if i in (2, 6) else 1.0)).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(i, repr(loss.item()), scaler.get_scale())
torch.save({"model": model.state_dict(), "scaler": scaler.state_dict(), "rng": torch.get_rng_state()}, "model.pt")
