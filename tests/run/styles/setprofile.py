"""Counts its own calls with sys.setprofile and threading.setprofile, and traces a few lines with sys.settrace."""

import sys
import threading
from collections import Counter

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

calls, lines = Counter(), Counter()


def count(frame, event, argument):
    if event == "call" and frame.f_code.co_filename == __file__:
        calls[frame.f_code.co_name] += 1


def trace(frame, event, argument):
    if frame.f_code.co_filename != __file__:
        return None
    lines[event] += 1
    return trace


def train():
    for (x,) in DataLoader(TensorDataset(torch.randn(24, 8)), batch_size=4, shuffle=True):
        step(x)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
threading.setprofile(count)
sys.setprofile(count)
train()
print(sys.getprofile() is count, sorted(calls.items()))
sys.setprofile(None)
threading.setprofile(None)
sys.settrace(trace)
train()
sys.settrace(None)
print(sys.gettrace(), sorted(lines.items()))
torch.save(model.state_dict(), "model.pt")
