"""torch.compile under the agent: the same graphs, the same breaks, the same words as without it."""

import re

import pytest

pytest.importorskip("torch")

from conftest import torch_version

if torch_version() < (2, 1):
    pytest.skip("torch 2.0 cannot compile on Python 3.11", allow_module_level=True)

SCRIPT = """
import sys, torch, torch.nn as nn
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader, TensorDataset
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.inner = nn.Linear(8, 8)
    def forward(self, x):
        return self.inner(x.to(torch.float32)).to("cpu").relu()
torch.manual_seed(0)
net = Net(); opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8)
if "model" in sys.argv:
    compiled = torch.compile(net, backend="aot_eager")
    for (x,) in loader:
        compiled(x).sum().backward(); opt.step(); opt.zero_grad()
if "reset" in sys.argv:
    compiled = torch.compile(net, backend="aot_eager"); compiled(next(iter(loader))[0])
    torch._dynamo.reset()
    for (x,) in loader:
        compiled(x).sum().backward(); opt.step(); opt.zero_grad()
if "optimizer" in sys.argv:
    step = torch.compile(opt.step, backend="aot_eager")
    for (x,) in loader:
        net(x).sum().backward(); step(); opt.zero_grad()
if "whole" in sys.argv:
    @torch.compile(backend="aot_eager")
    def train(x):
        loss = net(x).sum(); loss.backward(); opt.step(); opt.zero_grad()
        return loss.item()
    for (x,) in loader:
        train(x)
print(dict(counters["stats"]), dict(counters["graph_break"]), dict(counters["recompiles"]), net.inner.weight.sum().item())
"""


@pytest.mark.parametrize(
    "what", ["model", *(pytest.param(what, marks=pytest.mark.thorough) for what in ("optimizer", "reset", "whole"))]
)
def test_dynamo_sees_the_same(what, flatout, plain, script):
    path = script(SCRIPT)
    alone, ours = plain(path, what), flatout("run", "-q", path, what)
    assert alone.returncode == 0, alone.stderr.decode()
    assert ours.stdout == alone.stdout
    assert words_of(ours.stderr) == words_of(alone.stderr.decode())
    assert ours.summary["steps"] == 8
    assert ours.summary["phases"]["compile"] > 0


def words_of(stderr):
    """Without the time and process that torch's logger puts before each line."""
    return re.sub(r"^[VIWE]\d{4} [^\]]*\]", "", stderr, flags=re.MULTILINE)


NO_LOADER = """
import time, torch, torch.nn as nn
def slow(graph, inputs):
    time.sleep(0.4)
    return graph.forward
net = nn.Linear(8, 8); opt = torch.optim.SGD(net.parameters(), lr=0.1)
compiled = torch.compile(net, backend=slow)
for step in range(12):
    if step == 6:
        compiled = torch.compile(nn.Sequential(net, nn.ReLU()), backend=slow)
    compiled(torch.ones(4, 8)).sum().backward(); opt.step(); opt.zero_grad()
"""


@pytest.mark.thorough
def test_what_a_script_compiles_in_a_loop_without_a_loader_is_compiling(flatout, script):
    """Seen: it was backward or start-up. Before the first step and in the midst of the loop."""
    ours = flatout("run", "-q", script(NO_LOADER))
    assert ours.returncode == 0, ours.stderr
    phases = ours.summary["phases"]
    assert ours.summary["steps"] == 12
    assert phases["compile"] > 0.8
    assert phases["forward"] + phases["backward"] < 0.4
