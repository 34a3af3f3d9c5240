"""The properties of the design document on a real card, as hypothesis tests; those without one are in tests/api.

Run with `pytest -m gpu tests/gpu/test_properties_gpu.py`. Few examples, always the same, each of seconds.
"""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "api"))
from device_seen import DevicesSeen, tensors
from drawn import KINDS, Batches, as_it_is, assert_beside, layers, nests, sums
from trainings import LOSS, Rows, loop, seed

sys.path.pop(0)

from flatout import BatchSizeOptimizer, GPUOptimizer, GPUPerformanceAnalyzer, TrainingAccelerator
from flatout.machine import nvml
from flatout.machine.card_totals import used

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]

GIB, MIB = 2**30, 2**20


def few(examples):
    return settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def uuid():
    return f"GPU-{torch.cuda.get_device_properties(0).uuid}"


@given(wish=st.sampled_from([None, 0, "0", "uuid"]))
@few(4)
def test_1_the_discrete_card_is_chosen_however_it_is_asked_for(wish):
    chosen = GPUOptimizer(gpu_id=uuid() if wish == "uuid" else wish).optimize_device_selection()
    assert chosen.device_name == torch.cuda.get_device_name(0)
    assert chosen.here == "cuda:0"


@given(
    data=st.data(),
    extra=nests,
    optimizer=st.sampled_from([torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW]),
    precision=st.sampled_from(["no", "bf16", "fp16"]),
    accumulation=st.integers(1, 2),
)
@few(12)
def test_2_every_operation_of_a_training_runs_on_the_card(data, extra, optimizer, precision, accumulation):
    accelerator = TrainingAccelerator({"device_id": 0, "precision": precision, "gradient_accumulation_steps": accumulation})
    model = layers(data.draw)
    loader = DataLoader(Batches(extra), collate_fn=as_it_is, batch_size=1)
    model, steps, loader = accelerator.prepare(model, optimizer(model.parameters(), lr=0.01), loader)
    for batch in loader:
        with DevicesSeen() as seen:
            with accelerator.autocast():
                loss = LOSS(model(batch["x"]), batch["y"]) + sums(batch["extra"])
            accelerator.backward(loss)
            accelerator.step(steps)
        assert any("backward" in name for name, _ in seen.operations)
        assert seen.elsewhere(torch.device("cuda", 0)) == []


@given(width=st.integers(256, 2048), rows=st.integers(64, 2048))
@few(6)
def test_3_model_data_and_state_lie_in_the_cards_memory(width, rows):
    """As torch's allocator counts them there; of the weights nothing stays with the host."""
    gc.collect()  # what an earlier example left must not be given back during this one
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(0)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    size = sum(part.nbytes for part in model.parameters())
    behind = [StorageWeakRef(part.untyped_storage()) for part in model.state_dict().values()]
    accelerator = TrainingAccelerator({"device_id": 0})
    data = DataLoader(TensorDataset(torch.randn(rows, width), torch.randint(0, 10, (rows,))), batch_size=rows)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters()), data)
    assert all(storage.expired() for storage in behind)
    assert torch.cuda.memory_allocated(0) - before >= size
    for x, y in loader:
        accelerator.backward(LOSS(model(x), y))
        held = [x, y, *(parameter.grad for parameter in model.parameters())]
        accelerator.step(optimizer)
        state = [part for part in tensors(list(optimizer.state.values())) if part.dim()]
        assert all(part.is_cuda for part in [*held, *model.parameters(), *state])
        assert torch.cuda.memory_allocated(0) - before >= 3 * size + x.nbytes + y.nbytes  # Adam keeps two more of the weights


@given(width=st.sampled_from([1536, 2048, 3072]), rows=st.sampled_from([256, 512]))
@few(3)
def test_4_five_times_the_processor(width, rows):
    """Of models with work in them. Of any model, what is claimed is what was measured."""
    blocks = [layer for _ in range(3) for layer in (nn.Linear(width, width), nn.GELU())]
    analyzer = GPUPerformanceAnalyzer(
        nn.Sequential(*blocks), torch.randn(rows, width), loss=lambda output, batch: output.mean()
    )
    found = analyzer.compare_cpu_vs_gpu_performance(seconds=0.3)
    assert found.speedup == pytest.approx(found.gpu_samples_per_s / found.cpu_samples_per_s)
    assert found.meets_target == (found.speedup >= 5)
    assert found.speedup >= 5, found


@given(
    kind=st.sampled_from(sorted(KINDS)),
    width=st.integers(4, 32),
    number=st.integers(0, 9),
    precision=st.sampled_from(["bf16", "fp16"]),
)
@few(8)
def test_5_mixed_precision_does_not_disturb_a_training(kind, width, number, precision):
    """Within 0.03 and 3 % of float32's loss after each epoch."""
    courses = {}
    for name in ("no", precision):
        seed(number)
        model = KINDS[kind](width)
        accelerator = TrainingAccelerator({"device_id": 0, "precision": name})
        data = DataLoader(Rows(32), batch_size=8)
        model, steps, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.005), data)
        x, y = loader.dataset.x.cuda(), loader.dataset.y.cuda()
        courses[name] = []
        for epoch in range(5):
            loop(accelerator, model, steps, loader, epochs=epoch)
            with accelerator.evaluate(model):
                courses[name].append(float(LOSS(model(x).float(), y)))
        assert accelerator.precision == name
        assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())
    assert_beside(courses["no"], courses[precision], skipped=accelerator.skipped_steps)


@given(width=st.sampled_from([2048, 4096]), rows=st.sampled_from([4096, 8192]))
@few(3)
def test_5_mixed_precision_is_faster_where_there_is_work(width, rows):
    """Found out by the library itself on the training's own steps: "auto" keeps it."""
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(width, width), nn.GELU())), nn.Linear(width, 10))
    accelerator = TrainingAccelerator({"device_id": 0, "precision": "auto"})
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-4))
    x, y = torch.randn(rows, width, device="cuda"), torch.randint(0, 10, (rows,), device="cuda")
    for _ in range(600):
        accelerator.train_on((x, y), lambda part: LOSS(model(part[0]), part[1]))
        accelerator.step(optimizer)
        if accelerator._trial is None:
            break
    assert accelerator.precision != "no", accelerator.notes


@given(size=st.integers(64, 4096))
@few(4)
def test_6_the_monitor_tells_what_driver_and_allocator_tell(size):
    accelerator = TrainingAccelerator({"device_id": 0})
    model = nn.Linear(64, 64)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    torch.cuda.empty_cache()
    (card,) = [gpu for gpu in nvml.driver().gpus if gpu.uuid == uuid()] or nvml.driver().gpus[:1]
    used_before = used(card)
    held = torch.zeros(size * MIB, dtype=torch.uint8, device="cuda")
    monitor = accelerator.enable_performance_monitoring()
    x = torch.randn(4096, 64, device="cuda")
    for _ in range(400):
        accelerator.backward(model(x).pow(2).mean())
        accelerator.step(optimizer)
    torch.cuda.synchronize()
    for _ in range(2):
        torch.cuda._sleep(int(2e9))  # about a second of work each, so that the driver is asked while the card is busy
        torch.cuda.synchronize()
    report = monitor.stop()
    assert report.device == torch.cuda.get_device_name(0)
    assert report.memory_total_bytes == card.memory_total_bytes
    assert report.memory_used_bytes.high >= used_before + held.nbytes - 64 * MIB
    assert report.memory_used_bytes.high <= card.memory_total_bytes
    assert abs(report.allocated_bytes - torch.cuda.memory_allocated(0)) <= 64 * MIB
    assert report.allocated_peak_bytes >= held.nbytes
    assert 0 <= report.utilisation.low <= report.utilisation.mean <= report.utilisation.high <= 100
    assert report.steps == 400


@given(width=st.sampled_from([512, 1024, 4096]), depth=st.integers(2, 12))
@few(3)
def test_7_the_batch_that_is_chosen_fits_six_gib(width, depth):
    """Under a cap that imitates the memory of a 6 GB card: the size that is found trains through it."""
    total = torch.cuda.get_device_properties(0).total_memory
    model = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU()))).cuda()
    torch.cuda.empty_cache()
    try:
        torch.cuda.set_per_process_memory_fraction(6 * GIB / total)
        finder = BatchSizeOptimizer(model, loss=lambda output, batch: output.float().pow(2).mean(), largest=1 << 16)
        found, statistics = finder.find_optimal_batch_size(torch.randn(2, width), seconds=0.1)
        assert found >= 1, statistics
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            model(torch.randn(found, width, device="cuda")).float().pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert torch.cuda.max_memory_reserved() <= 6 * GIB
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@given(value=st.sampled_from(["", "-1", "7", "0,0", "GPU-00000000-1111-2222-3333-444444444444"]))
@few(3)
def test_8_a_real_fault_has_a_cause_and_a_fix(value):
    """A fault that can be planted from outside; tests/gpu/test_doctor_gpu.py plants more."""
    program = (
        "import flatout; report = flatout.GPUDiagnosticTool().generate_gpu_diagnostic_report(); "
        "cause = report.root_cause; assert cause and cause.fix, report; print(cause.name)"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": value}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "visible-devices"
