"""Knobs on a real card: each proved by what it must change there. Run with `pytest -m gpu`."""

import copy
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "apply"))
from stage import Net, Pictures, Stage, Training, same_bits

from _flatout_agent.knobs.loader.replacement_iterators import LiveSampler, Settings, build
from _flatout_agent.knobs.registry import KNOBS

sys.path.pop(0)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]


class OnCard(Training):
    """The same loop with its model and batches on the card."""

    def __init__(self, **settings):
        super().__init__(model=lambda: Net().cuda(), **settings)

    def run(self, at_step=lambda step: None):
        for _ in range(self.epochs):
            for x, y, index in self.loader:
                x, y = x.to("cuda"), y.to("cuda")
                loss = torch.nn.functional.cross_entropy(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.losses.append(loss.detach())
                self.order.append(index.tolist())
                self.steps += 1
                at_step(self.steps)
        torch.cuda.synchronize()
        return self


@pytest.fixture
def stage_on_card():
    stages = []

    def make(training):
        stage = Stage(training, KNOBS)
        stage.scene.device_type = "cuda"
        stages.append(stage)
        return stage

    yield make
    for stage in stages:
        stage.close()


def run_under(stage_on_card, knobs, at=4, **settings):
    training = OnCard(**settings)
    stage = stage_on_card(training)
    outcomes, proofs = {}, {}

    def step(number):
        if number == at:
            outcomes.update(stage.board.set(knobs))
        if number == 20:
            proofs.update(stage.board.proofs())

    training.run(step)
    stage.board.clear()
    return training, outcomes, proofs


@pytest.fixture
def deterministic():
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    yield
    torch.backends.cudnn.deterministic = before


@pytest.mark.parametrize("value", ["bf16", "fp16", "auto"])
def test_precision(stage_on_card, value):
    training, outcomes, proofs = run_under(stage_on_card, {"precision": value})
    assert outcomes["precision"].status == "applied", outcomes
    assert proofs["precision"].status == "applied", proofs
    assert proofs["precision"].details["operations"]
    assert all(torch.isfinite(loss) for loss in training.losses)
    assert type(training.model) is Net


def test_kernels_really_run_in_low_precision(stage_on_card):
    training = OnCard(epochs=1)
    stage = stage_on_card(training)
    stage.board.set({"precision": "bf16"})
    x = torch.randn(32, 3, 8, 8, device="cuda")
    training.model(x).sum().backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        training.model(x).sum().backward()
        torch.cuda.synchronize()
    names = " ".join(event.key for event in profile.key_averages()).lower()
    assert "bf16" in names or "bfloat16" in names, names


def test_tf32(stage_on_card):
    before = torch.get_float32_matmul_precision()
    _, outcomes, proofs = run_under(stage_on_card, {"tf32": "on"})
    assert outcomes["tf32"].status in ("applied", "already")
    if outcomes["tf32"].status == "applied":
        assert proofs["tf32"].status == "applied"
    assert torch.get_float32_matmul_precision() == before


def test_tf32_changes_a_product(stage_on_card):
    a = torch.randn(512, 512, device="cuda")
    exact = (a.double() @ a.double()).float()
    plain = (a @ a - exact).abs().max()
    stage = stage_on_card(OnCard())
    if stage.board.set({"tf32": "on"})["tf32"].status == "applied":
        assert (a @ a - exact).abs().max() > 3 * plain
        stage.board.clear()
        assert (a @ a - exact).abs().max() == plain


def test_cudnn_benchmark_only_before_the_first_step(stage_on_card):
    stage = stage_on_card(OnCard())
    assert stage.board.set({"cudnn_benchmark": "on"})["cudnn_benchmark"].status == "applied"
    assert torch.backends.cudnn.benchmark
    stage.board.clear()
    assert not torch.backends.cudnn.benchmark
    stage.scene.steps_done = 3
    assert stage.board.set({"cudnn_benchmark": "on"})["cudnn_benchmark"].code == "plans-chosen-already"


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_fused_and_layout_together(stage_on_card, kind):
    settings = {"optimizer": lambda p: kind(p, lr=0.01)}
    plain = OnCard(**settings).run()
    knobs = {"fused_optimizer": "on", "channels_last": "on"}
    training, outcomes, proofs = run_under(stage_on_card, knobs, **settings)
    assert {outcome.status for outcome in outcomes.values()} == {"applied"}, outcomes
    assert {proof.status for proof in proofs.values()} == {"applied"}, proofs
    ours, theirs = training.optimizer.state_dict(), plain.optimizer.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    for number, kept in theirs["state"].items():
        for name, value in kept.items():
            if isinstance(value, torch.Tensor):
                assert ours["state"][number][name].device == value.device, name
                assert ours["state"][number][name].stride() == value.stride(), name


def test_checkpoints_while_fused_is_on(stage_on_card):
    training = OnCard(optimizer=lambda p: torch.optim.AdamW(p, lr=0.01), epochs=1)
    stage = stage_on_card(training)
    stage.board.set({"fused_optimizer": "on"})
    training.run()
    saved = copy.deepcopy(training.optimizer.state_dict())
    assert saved["param_groups"][0]["fused"] is None
    assert {kept["step"].device.type for kept in saved["state"].values()} == {"cpu"}
    plain = OnCard(optimizer=lambda p: torch.optim.AdamW(p, lr=0.01), epochs=1)
    plain.optimizer.load_state_dict(saved)
    plain.run()
    training.optimizer.load_state_dict(saved)
    training.run()


def test_fused_under_the_scripts_scaler(stage_on_card):
    training = OnCard(optimizer=lambda p: torch.optim.AdamW(p, lr=0.01))
    stage = stage_on_card(training)
    scaler = torch.amp.GradScaler("cuda")
    stage.board.set({"fused_optimizer": "on"})
    for number, (x, y, _) in enumerate(training.loader):
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.cross_entropy(training.model(x.cuda()), y.cuda())
        scaler.scale(loss).backward()
        scaler.unscale_(training.optimizer)
        scaler.step(training.optimizer)
        scaler.update()
        training.optimizer.zero_grad()
        if number == 5:
            stage.board.clear()
    assert all(torch.isfinite(parameter).all() for parameter in training.model.parameters())


@pytest.fixture(scope="module")
def torch_has_compiled():
    """What torch.compile sets in the environment for itself (cuBLAS' workspace, Triton's folders) is set before a test begins.

    Module-wide, so it comes before the guard that compares the environment before and after a test: what is changed
    beyond that is ours, and fails there.
    """
    for mode in ("default", "reduce-overhead"):
        model = torch.compile(Net().cuda(), mode=mode)
        for _ in range(3):
            model(torch.randn(4, 3, 8, 8, device="cuda")).sum().backward()
            model.zero_grad(set_to_none=True)  # gradients of a graph are overwritten by its next run
    torch._dynamo.reset()


@pytest.mark.usefixtures("torch_has_compiled")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compile(stage_on_card, mode):
    plain = OnCard().run()
    training, outcomes, proofs = run_under(stage_on_card, {"compile": mode})
    if outcomes["compile"].code == "no-triton":
        pytest.skip("no Triton")
    assert outcomes["compile"].status == "applied", outcomes
    assert proofs["compile"].status == "applied", proofs
    assert proofs["compile"].details["cuda_graph_skips"] == 0
    assert training.order == plain.order
    assert all(torch.isfinite(loss) for loss in training.losses)


@pytest.mark.usefixtures("torch_has_compiled")
def test_graphs_with_two_calls_a_step_and_outputs_kept(stage_on_card):
    def kept(knobs):
        training = OnCard()
        training.model.drop.p = 0.0
        stage = stage_on_card(training)
        stage.board.set(knobs)
        results = []
        for x, _, _ in training.loader:
            first, second = training.model(x.cuda()), training.model(x.flip(0).cuda())
            (first - second).pow(2).mean().backward()
            training.optimizer.step()
            training.optimizer.zero_grad()
            results.append(first.detach())
        stage.board.clear()
        return torch.stack(results)

    assert torch.allclose(kept({}), kept({"compile": "reduce-overhead"}), atol=2e-2)


@pytest.mark.parametrize(
    "knobs",
    [
        {"pin_memory": "on"},
        {"workers": 2, "pin_memory": "on"},
        {"workers": 2, "pin_memory": "on", "non_blocking": "on"},
        {"workers": 2, "pin_memory": "on", "persistent_workers": "on", "device_prefetch": "on"},
        {"pin_memory": "on", "device_prefetch": "on", "non_blocking": "on"},
    ],
    ids=lambda knobs: "+".join(knobs),
)
def test_input_knobs_are_bit_exact(stage_on_card, deterministic, knobs):
    plain = OnCard(epochs=3).run()
    training, outcomes, proofs = run_under(stage_on_card, knobs, epochs=3)
    assert {outcome.status for outcome in outcomes.values()} == {"applied"}, outcomes
    assert {proof.status for proof in proofs.values()} == {"applied"}, proofs
    assert training.order == plain.order
    assert same_bits(training.weights(), plain.weights())


def test_batches_are_copied_out_of_shared_memory_into_pinned():
    """Once, by the thread that receives: each tensor lies in memory of its own, and stays as it was when it came."""
    loader = torch.utils.data.DataLoader(Pictures(size=64), batch_size=8)
    sampler = LiveSampler(iter(loader._index_sampler))
    served = build(torch, loader, Settings(workers=2, persistent=False, prefetch=2, pin=True), sampler, 7)
    ours, plain = list(served), list(loader)
    assert served._worker_result_queue._flatout_arena.taken >= len(ours) == len(plain)
    for batch, other in zip(ours, plain, strict=True):
        assert all(tensor.is_pinned() for tensor in batch)
        assert all(torch.equal(*both) for both in zip(batch, other, strict=True))


def test_a_batch_written_to_is_copied_again(stage_on_card):
    training = OnCard()
    stage = stage_on_card(training)
    stage.board.set({"pin_memory": "on", "device_prefetch": "on"})
    for number, (x, _, _) in enumerate(training.loader):
        if number > 2:
            x.fill_(number)
        on_card = x.to("cuda")
        if number > 2:
            assert (on_card == number).all()


def test_copies_overlap_with_work(stage_on_card):
    """A large batch is on its way while the card multiplies: the copy's stream is not the current one."""
    dataset = Pictures(size=64)
    training = OnCard(dataset=dataset, batch_size=16)
    stage = stage_on_card(training)
    stage.board.set({"pin_memory": "on", "device_prefetch": "on"})
    training.run()
    assert stage.scene.mover.used_ahead > 0
    assert stage.scene.mover._stream != torch.cuda.current_stream()


def test_cuda_tensors_in_the_dataset_stay_here(stage_on_card):
    dataset = Pictures()
    dataset.x = dataset.x.cuda()
    stage = stage_on_card(OnCard(dataset=dataset))
    assert stage.board.set({"workers": 2})["workers"].code == "cuda-tensors-in-dataset"


def test_pinned_batches_that_a_validation_fetches_in_inference_mode_are_replayed():
    from _flatout_agent.trial.replayed_batches import HOST, Replay

    data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.arange(64))
    replay = Replay(torch)
    with torch.inference_mode():
        iterator = iter(torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True))
        batches = [next(iterator) for _ in range(4)]
        for batch in batches:
            replay.keep(iterator, batch)
        replay.mode = HOST
        replay.pin(True)
        given = replay.give(iterator)
    again = replay.give(iterator)
    assert all(tensor.is_pinned() and not tensor.is_inference() for tensor in [*given, *again])
    assert given[1].tolist() in [batch[1].tolist() for batch in batches]
