"""Causes planted into synthetic scripts: the right one comes first, and the phases are the truth.

Each script times its own planted part with its own clock and prints the share of the loop that it took. What flatout
finds must be within five points of that.
"""

import json

import pytest

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

HEAD = """
import time, torch, torch.nn as nn
from time import perf_counter as now
from torch.utils.data import DataLoader, Dataset, TensorDataset
torch.manual_seed(0)
planted = 0.0
def tell(began):
    torch.cuda.synchronize()
    print(planted / (now() - began))
"""

INPUT = """
class Slow(Dataset):
    def __len__(self): return 32 * 300
    def __getitem__(self, i):
        time.sleep(0.0003)
        return torch.randn(256), i % 10
net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
loader = iter(DataLoader(Slow(), batch_size=32))
began = now()
for _ in range(300):
    t = now(); x, y = next(loader); planted += now() - t
    loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())
    opt.zero_grad(); loss.backward(); opt.step()
tell(began)
"""

COPY = """
net = nn.Linear(64, 1).cuda(); opt = torch.optim.SGD(net.parameters(), lr=1e-4)
data = torch.randn(4, 1_000_000, 64)
loader = DataLoader(TensorDataset(data), batch_size=None)
began = now()
for _ in range(30):
    for (x,) in loader:
        torch.cuda.synchronize()
        t = now(); x = x.to("cuda"); planted += now() - t
        net(x).mean().backward(); opt.step(); opt.zero_grad()
tell(began)
"""

ITEM = """
net = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(60)]).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
x = torch.randn(64, 1024, device="cuda")
began = now()
for _ in range(200):
    loss = net(x).pow(2).mean()
    opt.zero_grad(); loss.backward()
    for p in net.parameters():
        norm = p.grad.abs().max()
        t = now(); norm.item(); planted += now() - t  # as a logger would
    opt.step()
tell(began)
"""

TINY = """
net = nn.ModuleList(nn.Linear(32, 32) for _ in range(200)).cuda()
opt = torch.optim.Adam(net.parameters(), lr=1e-4, foreach=False, fused=False)
x = torch.randn(16, 32, device="cuda")
began = now()
for _ in range(150):
    t = now()
    h = x
    for layer in net: h = torch.tanh(layer(h) * 1.01 + 0.01)
    loss = h.mean()
    planted += now() - t
    opt.zero_grad(); loss.backward(); opt.step()
tell(began)
"""

COMPUTE = """
net = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(8)]).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
x = torch.randn(4096, 8192, device="cuda")
began = now()
for _ in range(40):
    loss = net(x).pow(2).mean(); loss.backward(); opt.step(); opt.zero_grad()
    t = now(); loss.item(); planted += now() - t
tell(began)
"""

LEAK = """
net = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
kept = []
x = torch.randn(512, 1024, device="cuda")
began = now()
for step in range(3000):
    h = net(x); loss = h.pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    kept.append(h.detach())
    if step % 50 == 0: torch.cuda.synchronize()
tell(began)
"""

BUSY = """
import os, multiprocessing as mp
def burn():
    while True: sum(range(10000))
if __name__ == "__main__":
    hogs = [mp.get_context("fork").Process(target=burn, daemon=True) for _ in range(3 * len(os.sched_getaffinity(0)))]
    for hog in hogs: hog.start()
    net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(40)]).cuda()
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    x = torch.randn(64, 64, device="cuda")
    for _ in range(5): net(x).mean().backward()
    began = now()
    while now() - began < 6:
        loss = net(x).pow(2).mean()
        opt.zero_grad(); loss.backward(); opt.step()
    tell(began)
    for hog in hogs: hog.kill()
"""

# name -> script, phase of the planted share, bound by one of, the first finding's name (None: not asked)
PLANTED = {
    "sleep-in-getitem": (INPUT, "input", {"input"}, "dataloader-bottleneck"),
    "big-unpinned-copies": (COPY, "copy", {"copy"}, "pageable-batches"),
    "hidden-item": (ITEM, "device_wait", None, "hidden-synchronisation"),
    "tiny-kernels": (TINY, "forward", {"launch"}, "tiny-kernels"),
    "heavy-compute-with-item": (COMPUTE, "device_wait", {"compute"}, "full-precision"),
    "leak": (LEAK, None, None, "memory-leak"),
    "busy-cpu": (BUSY, None, None, "cpu-contended"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_comes_first(name, flatout, script):
    source, phase, bounds, first = PLANTED[name]
    ended = flatout("run", script(HEAD + source))
    print(ended.stderr)
    assert ended.returncode == 0, ended.stderr
    summary = ended.summary
    loop = ("input", "copy", "forward", "backward", "optimizer", "device_wait", "compile", "script")
    spent = sum(summary["phases"][part] for part in loop)
    told = {part: round(summary["phases"][part] / spent, 4) for part in loop}
    truth = float(ended.stdout)
    findings = [finding["name"] for finding in summary["findings"]]
    device = summary.get("device") or {}
    print(json.dumps({"case": name, "truth": truth, "told": told, "bound_by": summary["bound_by"], "findings": findings}))
    print(json.dumps({"case": name, "lag": device.get("lag"), "reads": device.get("reads"), "copies": device.get("copies")}))
    if phase:
        assert told[phase] == pytest.approx(truth, abs=0.05)
    if bounds:
        assert summary["bound_by"] in bounds
    assert findings[:1] == [first], findings
