"""From journals to the terminal, end to end: a script leaves the journal that an agent on a GPU would have written."""

import json
import os

import pytest

GIB = 1 << 30

# Written beside whatever the agent itself writes; the process with the most steps tells the run.
PLANT = """
import json, os, sys, time
job = json.load(open(os.environ["FLATOUT_JOB"]))
lines = json.loads(sys.argv[1])
with open(os.path.join(job["run_dir"], "journal-99999.jsonl"), "w") as file:
    file.writelines(json.dumps(line) + "\\n" for line in lines)
time.sleep(1.5)
sys.exit(int(sys.argv[2]))
"""

PHASES = ("startup", "input", "copy", "forward", "backward", "optimizer", "device_wait", "compile", "validation", "checkpoint",
          "shutdown", "unexplained")  # fmt: skip


def journal(*more, steps=200, phases=None, **window):
    spent = phases or {"forward": 0.4, "backward": 0.5, "optimizer": 0.3}
    head = {"kind": "process", "wire": 1, "pid": 99999, "python": "3.12.3", "rank": None}
    torch = {"version": "2.13.0", "cuda": "12.8", "hip": None, "import_s": 1.0}
    totals = [int(spent.get(name, 0.0) * 1e9) for name in PHASES]
    last = {"kind": "window", "t": 0, "steps": steps, "samples": 32 * steps, "batches": steps, "phases": totals, "warm": None}
    return [{**head, "torch": torch}, {**last, **window}, *more]


@pytest.fixture
def planted(flatout, script):
    def run(lines, *options, ends=0, before=()):
        return flatout(*before, "run", *options, script(PLANT), json.dumps(lines), ends)

    return run


def test_a_launch_bound_run(planted):
    lag, busy = {"count": 80, "starved": 78, "mid_ns": 1000}, [900_000_000, 1_000_000_000]
    memory = {"peak": 2 * GIB, "peak_reserved": 3 * GIB, "total": 24 * GIB, "allocated": GIB, "reserved": 3 * GIB}
    ended = planted(journal({"kind": "end", "ended": 0.0}, lag=lag, device_busy=busy, memory=memory, tokens=120_000))
    summary = ended.summary
    assert summary["bound_by"] == "launch"
    assert summary["bound_evidence"]["starved"] == 0.975
    assert summary["tokens_per_s"] == pytest.approx(100_000)
    (finding,) = summary["findings"]
    assert (finding["code"], finding["knobs"]) == ("AP523", ["compile", "fused_optimizer", "batch_size"])
    assert "Bound by kernel launches: in 98 % of the checks during a step, the GPU had no kernel left to run" in ended.stderr
    assert "GPU memory: 2.0 GiB allocated at the peak, 3.0 GiB of 24.0 GiB reserved by PyTorch." in ended.stderr
    assert "100,000 tokens/s" in ended.stderr


def test_a_hidden_read_with_file_and_line_in_chinese(planted):
    reads = [{"site": "train.py:88", "what": "item", "ns": 620_000_000, "count": 200}]
    lag = {"count": 80, "starved": 60, "mid_ns": 1000}
    phases = {"forward": 0.2, "backward": 0.3, "optimizer": 0.1, "device_wait": 0.62}
    ended = planted(journal(reads=reads, lag=lag, phases=phases), before=("--lang", "zh"))
    assert "AP521 train.py:88 处的 .item() 每步花费 3.1 ms" in ended.stderr
    assert [finding["name"] for finding in ended.summary["findings"]] == ["hidden-synchronisation"]


def test_out_of_memory_has_its_post_mortem(planted):
    oom = {
        "kind": "oom",
        "step": 12,
        "message": "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 0.10 GiB "
        "is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, and 0.30 GiB is reserved by PyTorch but "
        "unallocated.",
        "memory": {"total": 24 * GIB, "allocated": 22 * GIB, "reserved": 22 * GIB},
        "holders": [{"what": "parameters", "bytes": GIB}, {"what": "activations", "bytes": 18 * GIB}],
        "batch": 64,
    }
    ended = planted(journal(oom, steps=12), ends=1)
    assert ended.returncode == 1
    told = ended.summary["out_of_memory"]
    assert (told["fits_batch_estimated"], told["batch"]) == (32, 64)
    assert [finding["name"] for finding in ended.summary["findings"]] == ["out-of-memory"]
    assert "Out of memory at step 12" in ended.stderr
    assert "the batch has 64 samples, memory in use: activations 18.0 GiB, weights 1.0 GiB, of 24.0 GiB" in ended.stderr
    assert "A batch of about 32 samples would fit (estimated" in ended.stderr


def test_a_batch_that_the_error_does_not_tell_is_the_loaders(planted):
    oom = {"kind": "oom", "message": "CUDA out of memory.", "memory": {"total": 24 * GIB}, "holders": []}
    loaders = [{"site": "t.py:3", "workers": 2, "batch_size": 48, "wait": 0, "batches": 12}]
    told = planted(journal(oom, steps=12, loaders=loaders), ends=1).summary["out_of_memory"]
    assert (told["batch"], told["fits_batch_estimated"]) == (48, 24)


def test_tensors_on_two_devices_are_named(planted):
    mix = {
        "kind": "devices",
        "site": "train.py:90",
        "message": "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        "tensors": [{"name": "model.fc.weight", "device": "cuda:0"}, {"name": "args[0]", "device": "cpu"}],
    }
    ended = planted(journal(mix, steps=0), ends=1)
    assert "AP503 At train.py:90 one operation got tensors on two devices: model.fc.weight (cuda:0), args[0] (cpu)." in (
        " ".join(ended.stderr.split())
    )


def test_json_goes_to_stderr_and_stdout_stays_the_scripts(planted):
    ended = planted(journal(losses=[[step, 2.0] for step in range(30)]), "--json")
    assert ended.stdout == b""
    assert json.loads(ended.stderr) == ended.summary
    assert ended.summary["losses"]["points"][0] == [0, 2.0]


def test_a_loss_that_is_nan_at_the_end(planted):
    losses = [[step, 1.0 if step < 20 else None] for step in range(30)]
    ended = planted(journal(losses=losses))
    assert "AP513 The loss is NaN at step 20; it was 1 before." in ended.stderr
    assert ended.summary["findings"][0]["severity"] == "fault"


@pytest.mark.skipif(not os.path.exists("/proc/thread-self/schedstat"), reason="the kernel does not count queueing")
def test_a_busy_processor_is_named(flatout, script):
    """Hogs on every core: the training stands in the queue, and that is what is wrong."""
    path = script(BUSY)
    ended = flatout("run", path)
    assert ended.returncode == 0, ended.stderr
    assert ended.summary["findings"][0]["name"] == "cpu-contended", (ended.summary["findings"], ended.summary["device"])


BUSY = """
import os, subprocess, sys, time, torch
from torch import nn
net = nn.Linear(64, 64)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
x = torch.randn(64, 64)
net(x).mean().backward(); optimizer.step()
hogs = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(3 * len(os.sched_getaffinity(0)))]
end = time.time() + 4
while time.time() < end:
    optimizer.zero_grad(); net(x).mean().backward(); optimizer.step()
for hog in hogs:
    hog.kill()
"""
