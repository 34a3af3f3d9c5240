"""Every second of a run has a name: loops of many styles, without settings and with some."""

import pytest

pytest.importorskip("torch")

HEAD = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
torch.set_num_threads(1)
"""

NANOGPT_LIKE = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(32, 16), nn.Linear(16, 32)
    def forward(self, x, y):
        logits = self.head(self.embedding(x))
        return logits, nn.functional.cross_entropy(logits.view(-1, 32), y.reshape(-1))
model = Model()
optimizer = torch.optim.AdamW(model.parameters())
def batch():
    data = torch.randint(0, 32, (4, 9))
    return data[:, :-1], data[:, 1:]
@torch.no_grad()
def estimate_loss():
    model.eval()
    time.sleep(0.3)
    loss = model(*batch())[1].item()
    model.train()
    return loss
for step in range(80):
    if step and step % 40 == 0:
        print(estimate_loss())
    _, loss = model(*batch())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.005)
"""

GAN = """
maker, judge = nn.Linear(4, 8), nn.Linear(8, 1)
of_maker, of_judge = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
for (real,) in DataLoader(TensorDataset(torch.randn(480, 8)), 8):
    made = maker(torch.randn(8, 4))
    of_judge.zero_grad(); (judge(made.detach()).mean() - judge(real).mean()).backward(); of_judge.step()
    of_maker.zero_grad(); (-judge(made).mean()).backward(); of_maker.step()
"""

SLEEPS_AND_DRAWS = """
import atexit
atexit.register(time.sleep, 0.4)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(net.parameters())
data = TensorDataset(torch.randn(160, 8), torch.randint(0, 2, (160,)))
train, valid = DataLoader(data, 4, shuffle=True), DataLoader(data, 16)
for epoch in range(3):
    for x, y in train:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        time.sleep(0.01)
    with torch.no_grad():
        for x, y in valid:
            net(x)
    torch.save(net.state_dict(), "net.pt")
    time.sleep(0.3)
"""

LBFGS = """
net = nn.Linear(8, 1)
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
for (x,) in DataLoader(TensorDataset(torch.randn(120, 8)), 4):
    def closure():
        optimizer.zero_grad(); loss = net(x).pow(2).sum(); loss.backward(); return loss
    optimizer.step(closure)
"""


@pytest.mark.parametrize(
    ("loop", "settings"),
    [
        (NANOGPT_LIKE, ()),
        (SLEEPS_AND_DRAWS, ("--workers", 1, "--knob", "fused_optimizer=on")),
        pytest.param(NANOGPT_LIKE, ("--knob", "channels_last=on"), marks=pytest.mark.thorough),
        pytest.param(SLEEPS_AND_DRAWS, (), marks=pytest.mark.thorough),
        pytest.param(GAN, (), marks=pytest.mark.thorough),
        pytest.param(GAN, ("--workers", 1), marks=pytest.mark.thorough),
        pytest.param(LBFGS, (), marks=pytest.mark.thorough),
        pytest.param(LBFGS, ("--workers", 1), marks=pytest.mark.thorough),
    ],
)
def test_every_second_has_a_name(loop, settings, flatout, script):
    summary = flatout("run", *settings, script(HEAD + loop)).summary
    wall, parts = summary["wall_s"], summary["parts"]
    assert summary["phases"]["unexplained"] < 0.03 * wall
    assert sum(parts.values()) == pytest.approx(wall)
    assert min(parts.values()) >= 0
    assert summary["samples"] > 0
    if loop is NANOGPT_LIKE:
        assert summary["phases"]["validation"] >= 0.3
        assert summary["samples"] == 320
    if loop is SLEEPS_AND_DRAWS:
        assert summary["turns"] == 2
        assert parts["script"] >= 0.9
        assert parts["exit"] >= 0.4
        assert summary["phases"]["script"] >= 0.9 + 1.2


HOGWILD = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def train(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for (x,) in DataLoader(TensorDataset(torch.ones(40, 8)), batch_size=4):
        net(x).sum().backward()
        optimizer.step(); optimizer.zero_grad()

if __name__ == "__main__":
    net = nn.Linear(8, 3).share_memory()
    processes = [torch.multiprocessing.get_context("spawn").Process(target=train, args=(net,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    with torch.no_grad():
        for (x,) in DataLoader(TensorDataset(torch.ones(40, 8)), batch_size=4):
            net(x); time.sleep(0.1)
"""


@pytest.mark.thorough
def test_the_validation_of_a_parent_of_training_processes(flatout, script):
    """Seen: Hogwild's was "shutdown"."""
    summary = flatout("run", script(HOGWILD)).summary
    assert summary["steps"] == 10
    assert summary["phases"]["validation"] == pytest.approx(1.0, abs=0.4)
    assert sum(summary["phases"].values()) == pytest.approx(summary["wall_s"])
