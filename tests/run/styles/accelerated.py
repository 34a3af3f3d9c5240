"""Accelerate: prepare, accumulate, gather, save; runs directly and under `accelerate launch`."""

import os

os.environ.setdefault("ACCELERATE_USE_CPU", "1")

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    set_seed(4)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    train = DataLoader(TensorDataset(torch.randn(30, 8), torch.randn(30, 1)), batch_size=4, shuffle=True)
    valid = DataLoader(TensorDataset(torch.randn(12, 8), torch.randn(12, 1)), batch_size=4)
    model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)
    for epoch in range(2):
        model.train()
        for x, y in train:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            scores = [accelerator.gather_for_metrics(nn.functional.mse_loss(model(x), y)).mean().item() for x, y in valid]
        accelerator.print(epoch, scores)
    accelerator.wait_for_everyone()
    accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")


if __name__ == "__main__":
    main()
