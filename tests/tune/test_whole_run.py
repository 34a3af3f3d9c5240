"""Promised and delivered on a script of short epochs: the profile's promise, and plain and tuned runs in turn beside it."""

import json
import time

import pytest

torch = pytest.importorskip("torch")

# Sixteen steps an epoch, a loader that sleeps, a validation and a checkpoint after each.
TOY = """
import argparse, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.008)
        return torch.full((32,), float(index % 11)), index % 3

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    epochs = parser.parse_args().epochs
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    training = DataLoader(Slow(128), batch_size=8, shuffle=True)
    checking = DataLoader(Slow(8), batch_size=8)
    for _ in range(epochs):
        net.train()
        for x, y in training:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            right = sum((net(x).argmax(1) == y).sum().item() for x, y in checking)
        torch.save(net.state_dict(), "last.pt")
    print(f"{right} right, weights {sum(p.double().abs().sum().item() for p in net.parameters()):.6f}")
"""


@pytest.mark.thorough
@pytest.mark.alone
def test_what_is_promised_is_delivered(flatout, script, tmp_path):
    path = script(TOY)
    tuned = flatout("tune", "--no-parity", "--allow", "exact", "--budget", "240s", "--json", path, timeout=400)
    assert tuned.returncode == 0, tuned.stderr
    whole = json.loads(tuned.stdout)["whole_run"]
    assert whole["code"] == "confirmed", tuned.stderr
    assert whole["planned"] == {"epochs": 40.0, "steps": 640, "source": "own-argument"}
    assert "Your 40 epochs:" in tuned.stderr

    walls, printed = {False: [], True: []}, set()
    for plain in (True, False, False, True):
        began = time.monotonic()
        ended = flatout("run", *(["--no-profile"] if plain else []), path)
        walls[plain].append(time.monotonic() - began)
        assert ended.returncode == 0, ended.stderr
        printed.add(ended.stdout)
    assert len(printed) == 1  # the same bits
    delivered = sum(walls[True]) / sum(walls[False])
    assert delivered >= 2.5, (walls, whole)
    assert delivered == pytest.approx(whole["speedup"], rel=0.15), (walls, whole)

    under_it = [json.loads(one.read_text(encoding="utf-8")) for one in (tmp_path / ".flatout" / "runs").glob("*/summary.json")]
    told = [summary["promise"] for summary in under_it if summary["promise"] is not None]
    assert len(told) == 2
    for promise in told:
        assert promise["code"] in ("delivered", "short")
        assert promise["ratio"] == pytest.approx(1.0, abs=0.15), told
        assert not promise["missing"]
