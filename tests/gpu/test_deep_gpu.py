"""`flatout run --deep` on a real GPU: `pytest -m gpu`."""

import json

import pytest

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

HEAD = """
import hashlib, sys, warnings, torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
"""

COMPUTE = (
    HEAD
    + """
net = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(4)]).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-5)
x = torch.randn(2048, 8192, device="cuda")
for _ in range(40):
    net(x).mean().backward(); opt.step(); opt.zero_grad()
"""
)

TINY = (
    HEAD
    + """
net = nn.Sequential(*[layer for _ in range(40) for layer in (nn.Linear(8, 8), nn.ReLU())]).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
x = torch.randn(8, 8, device="cuda")
for _ in range(200):
    net(x).mean().backward(); opt.step(); opt.zero_grad()
"""
)

SYNCS = (
    HEAD
    + """
net = nn.Linear(64, 64).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
x = torch.randn(256, 64, device="cuda")
for _ in range(60):
    warnings.warn("mine")
    y = net(x)
    y = y[y > 0]  # planted: a boolean mask
    where = (x[:, 0] > 0).nonzero()  # planted
    (y.mean() + x[where].mean()).backward(); opt.step(); opt.zero_grad()
print(torch.cuda.get_sync_debug_mode(), len(warnings.filters), net.weight.sum().item())
"""
)

LOADED = (
    HEAD
    + """
net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
data = TensorDataset(torch.randn(64 * 60, 1024))
for (x,) in DataLoader(data, batch_size=64, num_workers=int(sys.argv[1]), pin_memory=True):
    x = x.to("cuda", non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = net(x).pow(2).mean()
    loss.backward(); opt.step(); opt.zero_grad()
    print(loss.item())
print(hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in net.parameters())).hexdigest())
"""
)


def line_of(text, planted):
    return next(number for number, line in enumerate(text.splitlines(), 1) if planted in line)


def looked_at(ended):
    assert ended.returncode == 0, ended.stderr
    deep = ended.summary["deep"]
    print(json.dumps(deep))
    assert not [note for note in ended.summary["notes"] if note["code"] == "own-fault"], ended.summary["notes"]
    return deep


def share(deep):
    return deep["busy"]["busy_s"] / deep["busy"]["span_s"]


def test_a_compute_bound_script(flatout, script):
    ended = flatout("run", "--deep", script(COMPUTE))
    deep = looked_at(ended)
    assert share(deep) > 0.8, deep
    assert deep["device"] == torch.cuda.get_device_name()
    # Three products a layer, but the first one's input wants no gradient.
    assert deep["arithmetic"]["flops"] == 2 * 2048 * 8192 * 8192 * (3 * 4 - 1)
    assert list(deep["arithmetic"]["by_dtype"]) == ["float32"]  # TF32 is off by default for products
    assert 11 <= deep["kernels_per_step"] < 200
    assert deep["top"][0]["share"] > 0.3
    mfu = deep["ceilings"]["mfu"]
    assert isinstance(mfu, dict) or 0.2 < mfu < 1.1, deep["ceilings"]
    assert ended.summary["device"]["kernels_per_step"] == deep["kernels_per_step"]
    assert ended.summary["bound_by"] in ("compute", "unknown")
    assert "Deep profile (it took 6 steps," in ended.stderr


def test_tiny_kernels(flatout, script):
    deep = looked_at(flatout("run", "--deep", script(TINY)))
    assert share(deep) < 0.6, deep
    # 40 products and 40 ReLUs forward, at least three kernels for each pair backward, and the optimizer's.
    assert 200 <= deep["kernels_per_step"] < 2000
    assert deep["gaps_per_step"] >= 0
    mfu = deep["ceilings"]["mfu"]
    assert isinstance(mfu, dict) or mfu < 0.01


def test_hidden_synchronisations_are_found_with_their_lines(flatout, plain, script):
    path = script(SYNCS)
    alone, ended = plain(path), flatout("run", "--deep", path)
    deep = looked_at(ended)
    sites = {sync["site"]: sync["per_step"] for sync in deep["syncs"]}
    for planted in ("y = y[y > 0]", "where = (x[:, 0] > 0)"):
        assert sites.get(f"{path}:{line_of(SYNCS, planted)}", 0) >= 1, sites
    assert len(sites) <= 4, sites
    assert ended.stdout == alone.stdout
    assert ended.stderr.count("UserWarning: mine") == alone.stderr.decode().count("UserWarning: mine") == 1
    assert "synchronizing" not in ended.stderr
    assert "prototype" not in ended.stderr
    assert f"train.py:{line_of(SYNCS, 'y = y[y > 0]')} makes the CPU wait" in " ".join(ended.stderr.split())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_and_autocast(workers, flatout, plain, script):
    path = script(LOADED)
    alone, ended = plain(path, workers), flatout("run", "--deep", path, workers)
    deep = looked_at(ended)
    assert ended.stdout == alone.stdout
    assert deep["arithmetic"]["by_dtype"].get("bfloat16", 0) > 0.9 * deep["arithmetic"]["flops"], deep["arithmetic"]
    assert deep["arithmetic"]["flops"] == 2 * 64 * 1024 * 4096 * (2 + 3)
    assert deep["fetching"][0]["workers"] == workers
    found = deep["ceilings"]
    assert found["cpu_samples_per_s"] > 0
    assert found["gpu_samples_per_s"] >= 0.5 * ended.summary["samples_per_s"]
    assert "cores can load at most" in " ".join(ended.stderr.split())
    assert "the GPU could process" in " ".join(ended.stderr.split())
    item = line_of(LOADED, "print(loss.item())")
    assert any(sync["site"] == f"{path}:{item}" for sync in deep["syncs"]), deep["syncs"]


def test_a_step_that_is_captured_in_a_graph_is_left_alone(flatout, plain, script):
    text = (
        HEAD
        + """
net = nn.Linear(64, 64).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
x = torch.randn(32, 64, device="cuda")
def step():
    opt.zero_grad(set_to_none=True); net(x).pow(2).mean().backward(); opt.step()
side = torch.cuda.Stream(); side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(19): step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph): step()
for _ in range(50): graph.replay()
print(net.weight.sum().item())
"""
    )
    path = script(text)
    alone, ended = plain(path), flatout("run", "--deep", path)
    assert (ended.returncode, ended.stdout) == (0, alone.stdout), ended.stderr
