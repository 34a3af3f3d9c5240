"""A weighted sampler, a batch sampler by length, a collate function that pads into a batch class of its own."""

import random
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler, WeightedRandomSampler


@dataclass
class Padded:
    lengths: list
    tokens: torch.Tensor
    labels: torch.Tensor

    def pin_memory(self):
        return self


class Sentences(Dataset):
    def __len__(self):
        return 30

    def __getitem__(self, index):
        return torch.full((1 + index % 5,), index % 7), index % 2


class ByLength(Sampler):
    def __init__(self, dataset, size):
        self.order = sorted(range(len(dataset)), key=lambda i: len(dataset[i][0]))
        self.size = size

    def __iter__(self):
        batches = [self.order[i : i + self.size] for i in range(0, len(self.order), self.size)]
        random.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return -(-len(self.order) // self.size)


def collate(items):
    tokens = nn.utils.rnn.pad_sequence([tokens for tokens, _ in items], batch_first=True)
    return Padded([len(tokens) for tokens, _ in items], tokens, torch.tensor([label for _, label in items]))


random.seed(0)
torch.manual_seed(0)
data = Sentences()
model = nn.ModuleDict({"embed": nn.EmbeddingBag(7, 8), "head": nn.Linear(8, 2)})
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
loaders = [
    DataLoader(data, batch_sampler=ByLength(data, 4), collate_fn=collate),
    DataLoader(data, batch_size=5, sampler=WeightedRandomSampler([1.0 + i for i in range(30)], 20), collate_fn=collate),
]
for loader in loaders:
    for batch in loader:
        loss = nn.functional.cross_entropy(model["head"](model["embed"](batch.tokens)), batch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(batch.lengths, repr(loss.item()))
torch.save(model.state_dict(), "model.pt")
