"""The image-classification recipe: mixup, EMA by deepcopy, warm-up and cosine, meters, a copy of everything at the end."""

import copy
import io
import math
import pickle

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        image = torch.full((3, 8, 8), index / 40.0) + 0.1 * torch.randn(3, 8, 8)
        return (image.flip(-1) if torch.rand(()).item() < 0.5 else image), index % 4


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / self.count


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        return self.head(nn.functional.dropout(self.norm(self.conv(x)).relu().mean((2, 3)), 0.1, self.training))


class ModelEma:
    def __init__(self, model, decay=0.9):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for mine, new in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            mine.copy_(self.decay * mine + (1 - self.decay) * new if mine.is_floating_point() else new)


def mixup(x, y, alpha=0.8):
    share = torch.distributions.Beta(alpha, alpha).sample().item()
    order = torch.randperm(len(x))
    target = nn.functional.one_hot(y, 4).float()
    return share * x + (1 - share) * x[order], share * target + (1 - share) * target[order]


torch.manual_seed(7)
model = Net()
ema = ModelEma(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1, (t + 1) / 5) * 0.5 * (1 + math.cos(math.pi * t / 15)))
loader = DataLoader(Images(), batch_size=8, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
for epoch in range(3):
    losses, top1 = AverageMeter(), AverageMeter()
    for image, label in loader:
        mixed, target = mixup(image, label)
        output = model(mixed)
        loss = -(target * output.log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        ema.update(model)
        losses.update(loss.item(), len(image))
        top1.update((output.argmax(1) == label).float().mean().item(), len(image))
    print(epoch, repr(losses.avg), repr(top1.avg), schedule.get_last_lr())
    torch.save(
        {"epoch": epoch, "model": model.state_dict(), "ema": ema.module.state_dict(), "optimizer": optimizer.state_dict()},
        f"checkpoint-{epoch}.pt",
    )

# Copies, pickles and whole-model saves are their own models, with their own weights.
twin = copy.deepcopy(model)
with torch.no_grad():
    twin.head.bias += 1
print(torch.equal(twin.head.bias, model.head.bias), torch.equal(twin.conv.weight, model.conv.weight))
thawed = pickle.loads(pickle.dumps(model))
whole = io.BytesIO()
torch.save(model, whole)
whole.seek(0)
loaded = torch.load(whole, weights_only=False)
for copied in (thawed, loaded):
    print(all(torch.equal(a, b) for a, b in zip(model.parameters(), copied.parameters(), strict=True)))
print(pickle.dumps(optimizer.state_dict()).count(b"flatout"), whole.getvalue().count(b"flatout"))
