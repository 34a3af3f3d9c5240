"""WGAN-GP: a gradient penalty by double backward, through torch.autograd.grad."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
generator, critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3)
for i, (real,) in enumerate(DataLoader(TensorDataset(torch.randn(48, 8)), batch_size=4, shuffle=True)):
    fake = generator(torch.randn(len(real), 4)).detach()
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    loss = critic(fake).mean() - critic(real).mean() + 10 * (slope.norm(2, dim=1) - 1).pow(2).mean()
    opt_c.zero_grad()
    loss.backward()
    opt_c.step()
    if i % 3 == 2:
        opt_g.zero_grad()
        (-critic(generator(torch.randn(4, 4))).mean()).backward()
        opt_g.step()
    print(i, repr(loss.item()))
torch.save({"g": generator.state_dict(), "c": critic.state_dict()}, "model.pt")
