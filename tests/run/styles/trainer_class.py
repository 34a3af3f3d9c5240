"""A Trainer class: epochs, validation, a scheduler, the best checkpoint, resuming from the last."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class Noisy(Dataset):
    """Augments with all three generators, as image pipelines do."""

    def __init__(self, n):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(n, 8, generator=generator)
        self.y = (self.x.sum(1) > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        if random.random() < 0.5:
            x = x.flip(0)
        return x + 0.01 * torch.randn(8) + float(np.random.rand()) * 0.01, self.y[index]


class Trainer:
    def __init__(self, model, train, valid, epochs):
        self.model, self.train_loader, self.valid_loader, self.epochs = model, train, valid, epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, epochs)
        self.criterion = nn.CrossEntropyLoss()
        self.best = float("inf")

    def fit(self):
        for epoch in range(self.epochs):
            train_loss = self.run_epoch()
            valid_loss = self.validate()
            self.scheduler.step()
            print(f"epoch {epoch}: train {train_loss!r} valid {valid_loss!r} lr {self.scheduler.get_last_lr()[0]!r}")
            if valid_loss < self.best:
                self.best = valid_loss
                self.save("best.pt")
        self.save("last.pt")

    def run_epoch(self):
        self.model.train()
        total = 0.0
        for x, y in self.train_loader:
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.criterion(self.model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            total += loss.item() * len(x)
        return total / len(self.train_loader.dataset)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        return sum(self.criterion(self.model(x), y).item() for x, y in self.valid_loader) / len(self.valid_loader)

    def save(self, path):
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "rng": torch.get_rng_state(),
            },
            path,
        )


def main():
    set_seed(3)
    train, valid = random_split(Noisy(80), [60, 20])
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
    first, second = next(iter(DataLoader(train, batch_size=4)))  # a look at the data before training
    print(first.shape, second.shape)
    Trainer(model, DataLoader(train, batch_size=8, shuffle=True), DataLoader(valid, batch_size=8), epochs=3).fit()


if __name__ == "__main__":
    main()
