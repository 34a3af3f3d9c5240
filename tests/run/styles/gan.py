"""A GAN: two optimizers. gan.py N trains the critic N times for each step of the generator."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

n_critic = int(sys.argv[1])
torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
loader = DataLoader(TensorDataset(torch.randn(60, 8)), batch_size=3, shuffle=True)
for i, (real,) in enumerate(loader, 1):
    fake = generator(torch.randn(len(real), 4))
    loss_c = critic(fake.detach()).mean() - critic(real).mean()
    opt_c.zero_grad()
    loss_c.backward()
    opt_c.step()
    for p in critic.parameters():
        p.data.clamp_(-0.1, 0.1)
    if i % n_critic == 0:
        loss_g = -critic(generator(torch.randn(len(real), 4))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        print(i, repr(loss_c.item()), repr(loss_g.item()))
torch.save({"g": generator.state_dict(), "c": critic.state_dict(), "rng": torch.get_rng_state()}, "model.pt")
