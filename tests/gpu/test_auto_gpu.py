"""`run --auto` on a card: pinning, non-blocking copies and prefetch to the device leave every bit. Run with `pytest -m gpu`."""

import json

import pytest

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

TRAIN = """
import os, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
torch.use_deterministic_algorithms(True)

class Rows(Dataset):
    def __len__(self):
        return 20000
    def __getitem__(self, index):
        return torch.full((4096,), float(index % 97) / 97), index % 3

if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4096, 1024), nn.ReLU(), nn.Dropout(0.1), nn.Linear(1024, 3)).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    loader = DataLoader(Rows(), batch_size=64, shuffle=True)
    steps = 0
    while steps < int(sys.argv[1]):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x.to("cuda")), y.to("cuda"))
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            steps += 1
            if steps == int(sys.argv[1]):
                break
    torch.save(net.state_dict(), sys.argv[2])
"""


def test_every_bit_on_a_card(flatout, plain, script, tmp_path):
    path, steps = script(TRAIN), 8000
    ended = flatout("run", "--auto", "--json", path, steps, tmp_path / "auto.pt", timeout=600)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stderr[ended.stderr.index("\n{") :])
    print(json.dumps(told["auto"]))
    assert plain(path, steps, tmp_path / "plain.pt").returncode == 0
    auto, reference = (torch.load(tmp_path / name, weights_only=True) for name in ("auto.pt", "plain.pt"))
    assert all(torch.equal(auto[name], reference[name]) for name in reference)
    assert told["steps"] == steps
    assert {one["knob"] for one in told["auto"]["decisions"]} >= {"workers", "pin_memory", "non_blocking", "device_prefetch"}
