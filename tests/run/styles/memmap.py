"""nanoGPT's way: tokens in a memmap, get_batch instead of a loader, the next batch fetched during the step."""

import numpy as np
import torch
from torch import nn

torch.manual_seed(1337)
np.memmap("train.bin", dtype=np.uint16, mode="w+", shape=(2000,))[:] = np.random.default_rng(0).integers(0, 32, 2000)
block, batch = 16, 4


def get_batch():
    data = np.memmap("train.bin", dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block, (batch,))
    x = torch.stack([torch.from_numpy(data[i : i + block].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block].astype(np.int64)) for i in ix])
    return x.to("cpu"), y.to("cpu")


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.mix, self.head = nn.Embedding(32, 16), nn.Linear(16, 16), nn.Linear(16, 32, bias=False)
        self.wte.weight = self.head.weight

    def forward(self, x, y):
        logits = self.head(nn.functional.dropout(self.mix(self.wte(x)).relu(), 0.1, self.training))
        return logits, nn.functional.cross_entropy(logits.view(-1, 32), y.view(-1))


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    loss = torch.tensor([model(*get_batch())[1].item() for _ in range(3)]).mean().item()
    model.train()
    return loss


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
x, y = get_batch()
for it in range(12):
    if it % 5 == 0:
        print(it, repr(estimate_loss(model)))
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter": it}, "ckpt.pt")
    for _ in range(2):
        _, loss = model(x, y)
        x, y = get_batch()
        (loss / 2).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
