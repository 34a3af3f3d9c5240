"""Optimizers of people's own: a subclass that overrides step and calls its parent's, one from scratch, one that wraps."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Centralized(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad.dim() > 1:
                    p.grad -= p.grad.mean(1, keepdim=True)
        return super().step(closure)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.sub_((0.9 * m + 0.1 * p.grad).sign(), alpha=group["lr"])
                m.mul_(0.99).add_(p.grad, alpha=0.01)


class Lookahead(torch.optim.Optimizer):
    def __init__(self, base, k=3):
        super().__init__(base.param_groups, {})
        self.base, self.k, self.t = base, k, 0
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    def step(self, closure=None):
        self.base.step(closure)
        self.t += 1
        if self.t % self.k == 0:
            fast = (p for group in self.param_groups for p in group["params"])
            for slow, p in zip(self.slow, fast, strict=True):
                slow += 0.5 * (p.detach() - slow)
                p.data.copy_(slow)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
loader = DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=4, shuffle=True)
for make in (
    lambda p: Centralized(p, lr=0.05),
    lambda p: Lion(p, lr=1e-3),
    lambda p: Lookahead(torch.optim.Adam(p, lr=1e-3)),
):
    optimizer = make(list(model.parameters()))
    for (x,) in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(type(optimizer).__name__, repr(loss.item()))
torch.save(model.state_dict(), "model.pt")
