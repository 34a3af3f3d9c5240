"""DistributedDataParallel over gloo, two ranks, with a DistributedSampler; rank 0 saves."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 8), torch.randn(48, 1))
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, shuffle=True, seed=1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print(epoch, repr(total.item()), os.environ["WORLD_SIZE"], flush=True)
if rank == 0:
    torch.save(model.module.state_dict(), "model.pt")
torch.save(torch.get_rng_state(), f"rng-{rank}.pt")
dist.destroy_process_group()
