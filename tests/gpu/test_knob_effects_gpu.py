"""What each knob must change on a real card, seen from outside: in the profiler's trace, in processes, in whole runs.

One command runs all of them: `pytest -m gpu tests/gpu`.
"""

import gc
import os
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "apply"))
from stage import Net, Stage, Training

from _flatout_agent.knobs.registry import KNOBS

sys.path.pop(0)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]

MODES = ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]


@pytest.fixture
def stage_of():
    gc.collect()  # a worker that frees what another test left on the card cannot: it is a fork
    stages = []

    def make(training):
        stage = Stage(training, KNOBS)
        stage.scene.device_type = "cuda"
        stages.append(stage)
        return stage

    yield make
    for stage in stages:
        stage.close()


@pytest.fixture(scope="module")
def torch_has_compiled():
    """torch.compile sets variables of the environment for itself: before the tests, so that only ours would be noticed."""
    for mode in MODES:
        model = torch.compile(Net().cuda(), mode=mode)
        for _ in range(3):
            model(torch.randn(4, 3, 8, 8, device="cuda")).sum().backward()
            model.zero_grad(set_to_none=True)  # gradients of a graph are overwritten by its next run
    torch._dynamo.reset()


def traced(work):
    """(name, stream, begin, end) in nanoseconds of what the card did meanwhile, and the names of the host's calls."""
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    on_card, calls = [], []
    for event in profile.profiler.kineto_results.events():
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            begin = event.start_ns()
            on_card.append((event.name(), event.device_resource_id(), begin, begin + event.duration_ns()))
        else:
            calls.append(event.name())
    return on_card, calls


class Heavy(torch.utils.data.Dataset):
    """Samples of three megabytes: a batch takes a millisecond and more on its way to the card."""

    def __init__(self):
        self.x = torch.randn(8, 768, 1024)

    def __len__(self):
        return 12 * 48

    def __getitem__(self, index):
        return self.x[index % 8], index


class HeavyTraining:
    def __init__(self):
        torch.manual_seed(0)
        layers = torch.nn.Flatten(0, 1), torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)
        self.model = torch.nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.loader = torch.utils.data.DataLoader(Heavy(), batch_size=48, num_workers=2, pin_memory=True)
        self.losses, self.order = [], []

    def run(self):
        for x, index in self.loader:
            loss = self.model(x.to("cuda")).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.append(loss.item())  # the card is idle when the next batch is asked for
            self.order.append(index.tolist())


def overlapped(on_card):
    """The share of the copies' time in which the card also computed."""
    copies = [(begin, end) for name, _, begin, end in on_card if "HtoD" in name and end - begin > 100_000]
    work = sorted((begin, end) for name, _, begin, end in on_card if "Memcpy" not in name and "Memset" not in name)
    both = sum(max(0, min(end, stop) - max(begin, start)) for begin, end in copies for start, stop in work)
    return both / sum(end - begin for begin, end in copies)


def test_the_next_batch_is_copied_while_this_one_is_computed(stage_of):
    plain = HeavyTraining()
    plain.run()
    before, _ = traced(plain.run)
    training = HeavyTraining()
    stage = stage_of(training)
    stage.board.set({"device_prefetch": "on"})
    training.run()  # where the batches go is seen in the first epoch
    after, _ = traced(training.run)
    proof = stage.board.proofs()["device_prefetch"]
    assert proof.status == "applied", proof
    assert proof.details["batches_ahead"] >= 12
    assert training.order == plain.order
    assert training.losses == plain.losses
    assert overlapped(before) < 0.1
    assert overlapped(after) > 0.5
    streams = {stream for name, stream, begin, end in after if "HtoD" in name and end - begin > 100_000}
    kernels = {stream for name, stream, _, _ in after if "Memcpy" not in name and "Memset" not in name}
    assert streams - kernels  # a stream of its own


@pytest.mark.parametrize(("value", "words"), [("bf16", ("bf16", "bfloat16")), ("fp16", ("f16", "half", "fp16", "hgemm"))])
def test_the_dtype_in_the_kernels(stage_of, value, words):
    training = Training(model=lambda: Net().cuda())
    stage = stage_of(training)
    x = torch.randn(64, 3, 8, 8, device="cuda")

    def step():
        training.model(x).sum().backward()
        training.optimizer.step()
        training.optimizer.zero_grad()

    step()
    before, _ = traced(step)
    assert not any(word in name.lower() for name, *_ in before for word in words[:2] if word != "f16")
    stage.board.set({"precision": value})
    step()
    after, _ = traced(step)
    assert any(word in name.lower() for name, *_ in after for word in words), [name for name, *_ in after]


def test_tf32_in_the_kernels(stage_of):
    a = torch.randn(1024, 1024, device="cuda")
    stage = stage_of(Training(model=lambda: Net().cuda()))
    torch.mm(a, a)
    if stage.board.set({"tf32": "on"})["tf32"].status != "applied":
        pytest.skip("the script's own")
    torch.mm(a, a)
    on_card, _ = traced(lambda: torch.mm(a, a))
    assert any("tf32" in name.lower() for name, *_ in on_card), on_card


@pytest.mark.usefixtures("torch_has_compiled")
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_graphs_are_captured_and_replayed(stage_of, mode):
    training = Training(model=lambda: Net().cuda())
    stage = stage_of(training)
    stage.board.set({"compile": mode})
    x = torch.randn(16, 3, 8, 8, device="cuda")

    def step():
        training.model(x).sum().backward()
        training.optimizer.step()
        training.optimizer.zero_grad()

    for _ in range(8):
        step()
    proof = stage.board.proofs()["compile"]
    assert proof.status == "applied", proof
    assert proof.details["cuda_graphs"] >= 1
    _, calls = traced(step)
    assert any("cudaGraphLaunch" in name for name in calls), sorted(set(calls))


@pytest.mark.usefixtures("torch_has_compiled")
@pytest.mark.parametrize("mode", MODES)
def test_shapes_that_change_and_two_calls_a_step(stage_of, mode):
    """Right under every mode, or not applied with the reason."""

    def outputs(knobs):
        training = Training(model=lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.AdaptiveAvgPool2d(1)).cuda())
        stage = stage_of(training)
        stage.board.set(knobs)
        kept = []
        for step, size in enumerate((8, 8, 9, 10, 8, 11, 9, 12)):
            x = torch.full((4, 3, size, size), 0.1 * step, device="cuda")
            first, second = training.model(x), training.model(x.flip(0) + 1)
            (first - second).pow(2).mean().backward()
            training.optimizer.step()
            training.optimizer.zero_grad()
            kept += [first.detach(), second.detach()]
        proofs = stage.board.proofs()
        stage.board.clear()
        return torch.stack(kept), proofs

    plain, _ = outputs({})
    ours, proofs = outputs({"compile": mode})
    assert torch.allclose(plain, ours, atol=2e-2)
    proof = proofs["compile"]
    assert proof.status == "applied" or proof.code, proof
    if proof.status == "applied":
        assert proof.details["recompiles"] >= 1


def test_channels_last_kernels_need_no_transposing(stage_of):
    layers = [torch.nn.Conv2d(32, 32, 3, padding=1) for _ in range(4)]
    training = Training(model=lambda: torch.nn.Sequential(*layers).cuda().half())
    stage = stage_of(training)
    x = torch.randn(16, 32, 64, 64, device="cuda", dtype=torch.float16)

    def step():
        training.model(x).float().sum().backward()

    def transposing(on_card):
        return sum("nchwtonhwc" in name.lower() or "nhwctonchw" in name.lower() for name, *_ in on_card)

    step()
    before = transposing(traced(step)[0])
    assert stage.board.set({"channels_last": "on"})["channels_last"].status == "applied"
    step()
    proof = stage.board.proofs()["channels_last"]
    assert proof.details == {"activation": "channels_last"}, proof
    after = transposing(traced(step)[0])
    assert after <= before
    assert not before or after < before


def test_workers_are_processes(stage_of):
    training = Training(model=lambda: Net().cuda(), epochs=1)
    stage = stage_of(training)
    stage.board.set({"workers": 2})
    iterator = iter(training.loader)
    for _ in range(3):
        next(iterator)
    assert stage.board.proofs()["workers"].details["workers_alive"] == 2
    (control,) = stage.scene.handover._controls.values()
    for pid in control.worker_pids[-1]:
        os.kill(pid, 0)  # raises where there is none
    del iterator


SEARCHES = """
import torch
from torch import nn
torch.manual_seed(0)
body = nn.Conv2d(16, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 5)
net = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = torch.randn(8, 16, 64, 64, device="cuda"), torch.zeros(8, dtype=torch.long, device="cuda")
torch.zeros(1, device="cuda").sum().item()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
    nn.functional.cross_entropy(net(x), y).backward()
    torch.cuda.synchronize()
print(sum(event.count for event in profile.key_averages()))
for _ in range(40):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
"""


def test_plans_are_searched_in_a_real_run(flatout, plain, script):
    """Each convolution's first call tries several plans: many more kernels than it needs."""
    path = script(SEARCHES)
    alone = plain(path)
    ours = flatout("run", "--knob", "cudnn_benchmark=on", path)
    assert ours.returncode == 0, ours.stderr
    (use,) = ours.summary["knobs"]
    assert (use["came"], use["code"]) == ("applied", ""), use
    assert int(ours.stdout.split()[0]) > 2 * int(alone.stdout.split()[0])


@pytest.mark.parametrize("value", ["expandable", "roundup"])
def test_allocator_settings_in_a_real_run(flatout, script, value):
    ended = flatout("run", "--knob", f"allocator={value}", script(SEARCHES))
    assert ended.returncode == 0, ended.stderr
    (use,) = ended.summary["knobs"]
    assert (use["came"], use["code"]) == ("applied", ""), use
    assert use["numerics"] == "exact"


def test_the_users_own_allocator_settings_stay(flatout, script):
    text = "import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'max_split_size_mb:128'\n" + SEARCHES
    ended = flatout("run", "--knob", "allocator=expandable", script(text))
    assert ended.returncode == 0, ended.stderr
    (use,) = ended.summary["knobs"]
    assert (use["came"], use["code"]) == ("refused", "environment-chose"), use


LOGS = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(64, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = torch.randn(32, 64, device="cuda"), torch.zeros(32, dtype=torch.long, device="cuda")
running = 0.0
for step in range(60):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    running += loss.item() * 2
    if step % 10 == 9:
        print(f"{step} {running / 10!r}")
        running = 0.0
"""


def test_a_logged_loss_is_read_when_it_is_shown(flatout, plain, script):
    path = script(LOGS)
    ended = flatout("run", "--knob", "deferred_item=on", path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == plain(path).stdout  # to the last digit
    (use,) = ended.summary["knobs"]
    assert (use["came"], use["numerics"]) == ("applied", "exact"), use
    assert use["details"]["items"] >= 40
    assert use["details"]["waits"] < use["details"]["items"] / 4
