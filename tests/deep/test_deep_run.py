"""`flatout run --deep` on real scripts: what is planted is found, and the script does not notice."""

import json

import pytest

torch = pytest.importorskip("torch")

SLOW = """
import sys, time, torch, torch.nn as nn
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, i):
        end = time.thread_time() + 0.004
        while time.thread_time() < end: pass  # the slow line
        return torch.randn(16), torch.randn(8)

if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Linear(16, 8)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    context = sys.argv[2] if len(sys.argv) > 2 else None
    for x, y in DataLoader(Data(), batch_size=4, num_workers=int(sys.argv[1]), multiprocessing_context=context):
        loss = ((net(x) - y) ** 2).mean()
        opt.zero_grad(); loss.backward(); opt.step()
    print(loss.item())
"""
SLOW_LINE = 1 + SLOW.splitlines().index("        while time.thread_time() < end: pass  # the slow line")


@pytest.mark.parametrize(
    "arguments", [("2",), *(pytest.param(words, marks=pytest.mark.thorough) for words in (("0",), ("2", "spawn")))]
)
def test_the_slow_line_is_found(arguments, flatout, script):
    ended = flatout("run", "--deep", script(SLOW), *arguments)
    assert ended.returncode == 0, ended.stderr
    (cost,) = ended.summary["deep"]["fetching"]
    assert (cost["dataset"], cost["source"], cost["workers"]) == ("Data", "__getitem__", int(arguments[0]))
    assert 0.004 <= cost["per_sample_s"] < 0.008
    first = cost["lines"][0]
    assert (first["site"], first["function"]) == (f"{ended.folder / 'train.py'}:{SLOW_LINE}", "__getitem__")
    assert first["share"] > 0.5
    assert f"of the time per sample is spent at train.py:{SLOW_LINE}." in " ".join(ended.stderr.split())
    supply = ended.summary["deep"]["ceilings"]["cpu_samples_per_s"]
    assert supply == pytest.approx(ended.summary["machine"]["processor"]["usable"] / cost["per_sample_s"])


LINEAR = """
import sys, torch, torch.nn as nn
net = nn.Linear(64, 32)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    opt.zero_grad(); net(torch.ones(8, 64)).sum().backward(); opt.step()
"""


def test_the_flops_of_a_linear_are_exact(flatout, script):
    deep = flatout("run", "--deep", script(LINEAR), "30").summary["deep"]
    once = 2 * 8 * 64 * 32
    assert deep["arithmetic"]["flops"] == 2 * once  # forward and the weights' gradient: the input wants none
    assert deep["arithmetic"]["by_dtype"] == {"float32": 2 * once}
    assert deep["arithmetic"]["bytes_estimated"] >= 4 * (2 * 8 * 64 + 2 * 64 * 32)
    assert deep["ceilings"]["flops_per_s"] > 0
    assert deep["ceilings"]["gpu_samples_per_s"]["reason"] in ("no-device", "no-batches")
    assert deep["steps"] == 4
    assert deep["cost_s"] > 0
    assert "aten::addmm" in [one["name"] for one in deep["top"]]


LEARNS = """
import hashlib, sys, warnings, torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.3), nn.Linear(64, 4))
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(200, 16), torch.randint(0, 4, (200,)))
for epoch in range(int(sys.argv[1])):
    for x, y in DataLoader(data, batch_size=40, shuffle=True):
        warnings.warn("mine")
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
        print(loss.item())
    with torch.no_grad():
        print(sum(nn.functional.cross_entropy(net(x), y).item() for x, y in DataLoader(data, batch_size=50)))
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest(), torch.rand(1).item())
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize(("epochs", "code"), [pytest.param(1, 0, marks=pytest.mark.thorough), (8, 3)])
def test_the_script_does_not_notice(epochs, code, flatout, plain, script):
    path = script(LEARNS)
    alone, ours = plain(path, epochs, code), flatout("run", "--deep", "-q", path, epochs, code)
    assert (ours.returncode, ours.stdout) == (code, alone.stdout), ours.stderr
    assert ours.stderr == alone.stderr.decode()  # nothing of the profiler's own, and each warning as often as before
    deep = ours.summary["deep"]
    assert deep["steps"] == 4, deep
    assert deep["arithmetic"]["flops"] > 0
    assert set(deep["refused"]) == {"syncs"}


@pytest.mark.thorough
def test_a_script_with_five_steps_is_looked_at(flatout, script):
    text = LEARNS.replace("range(int(sys.argv[1]))", "range(1)").replace("    with torch.no_grad():", "    if 0:")
    ended = flatout("run", "--deep", script(text), "1", "0")
    assert ended.summary["steps"] == 5
    assert ended.summary["deep"]["steps"] == 4
    assert "Deep profile (it took 4 steps," in ended.stderr


def test_a_script_without_steps_is_told_why(flatout, script):
    ended = flatout("run", "--deep", script("import torch; print(torch.ones(2).sum().item())"))
    assert (ended.returncode, ended.stdout) == (0, b"2.0\n")
    assert ended.summary["deep"]["refused"] == {"none": "no-steps"}
    assert "Not measured: everything (no training steps were seen)." in ended.stderr


@pytest.mark.thorough
def test_too_short_for_a_warm_up(flatout, script):
    ended = flatout("run", "--deep", script(LINEAR), "5")
    assert ended.summary["deep"]["refused"] == {"none": "too-few-steps"}
    assert "the script ended during the warm-up" in ended.stderr


@pytest.mark.thorough
def test_nothing_of_it_without_the_flag(flatout, script):
    ended = flatout("run", script(LINEAR), "30")
    assert ended.summary["deep"] is None
    assert "Deep profile" not in ended.stderr
    assert "deep" not in json.loads((ended.run_folder / "job.json").read_text())
    assert not [
        line for path in ended.run_folder.glob("journal-*") for line in path.read_text().splitlines() if '"deep"' in line
    ]


PROFILES = """
from torch.profiler import ProfilerActivity, profile
def ours(step):
    global theirs
    if step == made: theirs = profile(activities=[ProfilerActivity.CPU])
    if step == 21: theirs.start()
    if step == 24:
        theirs.stop(); print(sorted((one.key, one.count) for one in theirs.key_averages() if one.key == "aten::addmm"))
made = int(sys.argv[2])
"""


@pytest.mark.parametrize("made", [pytest.param(0, marks=pytest.mark.thorough), 21])
def test_a_script_that_profiles_itself_has_the_profiler_for_itself(made, flatout, script):
    text = LINEAR.replace("net = nn", PROFILES + "net = nn").replace("net(torch.ones", "ours(_); net(torch.ones")
    ended = flatout("run", "--deep", script(text), "40", made)
    assert (ended.returncode, ended.stdout) == (0, b"[('aten::addmm', 3)]\n"), ended.stderr
    assert ended.summary["deep"]["refused"] == dict.fromkeys(("profile", "syncs", "flops"), "script-profiles")


def test_compiled_code_is_not_counted_and_says_so(flatout, script):
    text = LINEAR.replace("net(torch", "forward(torch").replace(
        "opt = ", "forward = torch.compile(lambda x: net(x).relu(), backend='aot_eager')\nopt = "
    )
    ended = flatout("run", "--deep", script(text), "30")
    deep = ended.summary["deep"]
    assert (ended.returncode, deep.get("arithmetic"), deep["refused"]["flops"]) == (0, None, "compiled"), deep
    assert deep["top"]


@pytest.mark.thorough
def test_updates_by_hand_and_gans_are_looked_at_in_whole_steps(flatout, script):
    by_hand = LINEAR.replace("opt.zero_grad(); ", "net.zero_grad(); ").replace(
        "opt.step()", "net.weight.data -= net.weight.grad"
    )
    assert flatout("run", "--deep", script(by_hand), "60").summary["deep"]["arithmetic"]["flops"] == 4 * 8 * 64 * 32


@pytest.mark.thorough
def test_two_optimizers_in_turn_are_one_step(flatout, script):
    text = LINEAR + "    opt2.zero_grad(); two(torch.ones(8, 64)).sum().backward(); opt2.step()\n"
    text = text.replace("opt = ", "two = nn.Linear(64, 32); opt2 = torch.optim.SGD(two.parameters(), lr=0.1)\nopt = ")
    deep = flatout("run", "--deep", script(text), "40").summary["deep"]
    assert deep["arithmetic"]["flops"] == 8 * 8 * 64 * 32
