"""Profiles itself with torch.profiler: the operators that it sees, and how often (Python's own frames left out)."""

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=4, shuffle=True)


def report(profiler):
    for event in sorted(profiler.key_averages(), key=lambda event: event.key):
        if not event.key.startswith(("Profiler", "<built-in", "nn.Module")) and ".py(" not in event.key:
            print(event.key, event.count)


with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=3),
    on_trace_ready=report,
    with_stack=True,
    record_shapes=True,
) as profiler:
    for (x,) in loader:
        with record_function("forward"):
            loss = model(x.to("cpu", torch.float32)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        profiler.step()
torch.save(model.state_dict(), "model.pt")
