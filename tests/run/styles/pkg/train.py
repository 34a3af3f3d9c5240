"""Run as `python -m pkg.train`: relative imports, options, the whole model saved under its package's name."""

import argparse
import sys

import torch
from torch import nn

from .data import loader
from .models import Net


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(options.epochs):
        for x, y in loader(24):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, repr(loss.item()))
    print(__name__, __package__, sys.argv[1:], sys.path[0] == sys.path[0].strip(), "sitecustomize" in sys.modules)
    torch.save(model, "whole.pth")
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
