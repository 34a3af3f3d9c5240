"""On a real GPU: `pytest -m gpu`."""

import json

import pytest

torch = pytest.importorskip("torch")

from conftest import EXAMPLES

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

HEAD = """
import time, torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
"""


@pytest.mark.parametrize("name", ["restoration", "behavior", "vision", "gpt"])
def test_specimens_on_the_gpu(name, flatout, plain):
    steps = {"restoration": 60, "behavior": 200, "vision": 40, "gpt": 30}[name]
    arguments = [EXAMPLES / f"{name}.py", "--steps", steps]
    alone, ours = plain(*arguments), flatout("run", *arguments)
    assert (ours.returncode, ours.stdout) == (alone.returncode, alone.stdout), ours.stderr
    summary = ours.summary
    print(json.dumps({name: summary["phases"], "samples_per_s": summary["samples_per_s"]}))
    assert summary["steps"] == steps
    assert summary["phases"]["unexplained"] <= 0.05 * summary["wall_s"]
    assert summary["phases"]["copy"] > 0
    assert summary["machine"]["gpus"][0]["name"] == torch.cuda.get_device_name()


def test_a_blocking_copy_is_told_from_the_wait_before_it(flatout, script):
    """Heavy compute, then a small blocking copy: the host sits in `.to()`, but what it waits for is the compute."""
    path = script(
        HEAD
        + """
net = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(8)]).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
for (x,) in DataLoader(TensorDataset(torch.randn(4096 * 40, 8)), batch_size=4096):
    x = x.to("cuda")
    net(x.repeat(1, 1024)).sum().backward(); opt.step(); opt.zero_grad()
"""
    )
    phases = flatout("run", path).summary["phases"]
    assert phases["device_wait"] > 10 * phases["copy"], phases
    assert phases["device_wait"] > 0.5 * sum(
        phases[name] for name in ("copy", "device_wait", "forward", "backward", "optimizer")
    )


def test_a_big_unpinned_copy_is_copy(flatout, script):
    path = script(
        HEAD
        + """
net = nn.Linear(64, 1).cuda(); opt = torch.optim.SGD(net.parameters(), lr=1e-4)
data = torch.randn(8, 2_000_000, 64)
for i in range(6):
    for (x,) in DataLoader(TensorDataset(data), batch_size=None):
        x = x.to("cuda"); net(x).mean().backward(); opt.step(); opt.zero_grad()
"""
    )
    phases = flatout("run", path).summary["phases"]
    assert phases["copy"] > 3 * (phases["device_wait"] + phases["forward"] + phases["backward"]), phases


def test_item_in_a_compute_bound_loop_is_waiting_for_the_device(flatout, script):
    path = script(
        HEAD
        + """
net = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(8)]).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
x = torch.randn(4096, 8192, device="cuda")
for _ in range(30):
    loss = net(x).mean(); loss.backward(); opt.step(); opt.zero_grad(); loss.item()
"""
    )
    phases = flatout("run", path).summary["phases"]
    assert phases["device_wait"] > 0.8 * sum(phases[name] for name in ("device_wait", "forward", "backward", "optimizer")), (
        phases
    )


def test_the_memory_cap_holds(flatout, script):
    path = script(
        "import torch\n"
        "total = torch.cuda.get_device_properties(0).total_memory\n"
        "small = torch.empty(int(total * 0.02), dtype=torch.uint8, device='cuda')\n"
        "try:\n    torch.empty(int(total * 0.2), dtype=torch.uint8, device='cuda'); print('fits')\n"
        "except torch.OutOfMemoryError:\n    print('capped')\n"
    )
    assert flatout("run", "-q", path).stdout == b"fits\n"
    assert flatout("run", "-q", "--gpu-memory-fraction", "0.1", path).stdout == b"capped\n"


def test_gpu_id_by_index_and_uuid(flatout, script):
    path = script("import torch; print(torch.cuda.get_device_name(0))")
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    for asked in ("0", uuid, uuid[:12]):
        ended = flatout("run", "-q", "--gpu-id", asked, path)
        assert ended.stdout.decode().strip() == torch.cuda.get_device_name()
        assert torch.cuda.get_device_name() in ended.stderr
    assert flatout("run", "--gpu-id", "9", path).returncode == 2
    hidden = flatout("run", "--gpu-id", "0", path, env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert hidden.returncode == 2
    assert "CUDA_VISIBLE_DEVICES" in hidden.stderr
