"""The library as torchrun starts it: two real processes on gloo, DDP and FSDP2 by configuration, the same lines as alone."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flatout.api.torch_part import torch_is_at_least

SCRIPT = Path(__file__).resolve().parent / "ranked_training.py"
SOURCE = SCRIPT.parents[2] / "src"


def torchrun():
    """On the loopback by its number: names of machines are looked up slowly where there is no network."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return ("-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}")


MODES = ("ddp", "fsdp") if torch_is_at_least(2, 6) else ("ddp",)  # FSDP2 on the processor came with 2.6

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="gloo's rendezvous is tested on Linux")


def started(folder, mode, launcher=()):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, str(SCRIPT), str(folder), mode]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        _, said = process.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        process.terminate()  # not killed: torchrun ends its ranks, which have sessions of their own
        process.communicate(timeout=60)
        raise
    assert process.returncode == 0, said[-4000:]
    return [json.loads(path.read_text(encoding="ascii")) for path in sorted(folder.glob(f"{mode}-?.json"))]


def close(one, other):
    torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    (told,) = started(tmp_path_factory.mktemp("alone"), "no")
    assert told["world"] == 1
    return told


@pytest.mark.parametrize("mode", [pytest.param(mode, marks=pytest.mark.thorough) if mode == "fsdp" else mode for mode in MODES])
def test_two_ranks_learn_and_decide_as_one(tmp_path, alone, mode):
    ranks = started(tmp_path, mode, torchrun())
    assert [told["world"] for told in ranks] == [2, 2]
    for told in ranks:
        for name, part in told["weights"].items():
            close(part, alone["weights"][name])
        close(told["losses"], alone["losses"])  # the mean of both ranks' batches is that of the batch of both
        close(told["validation"], [0.55, 0.4, 1.05])
        assert told["best"] == 1  # neither rank alone would say so
        assert told["recovered"]["precision"] == "no"  # all of them, though one had the loss that was no number
        assert told["recovered"]["ended"] == pytest.approx(alone["recovered"]["ended"], rel=0.05)
        (said,) = told["recovered"]["notes"]
        assert f"{mode}-good.pt" in said
    assert ranks[0]["losses"] == ranks[1]["losses"]
    best, last = (torch.load(tmp_path / f"{mode}-{name}.pt", weights_only=True) for name in ("best", "last"))
    assert [len(saved["extra"]["losses"]) for saved in (best, last)] == [2, 3]
    assert set(best["models"]["model-1"]) == set(alone["weights"])  # whole, under plain names
