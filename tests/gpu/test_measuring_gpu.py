"""The library on a real card: what it reports is what the driver says, trials never end a training, results are right."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from flatout import BatchSizeOptimizer, GPUPerformanceAnalyzer, PerformanceMonitor
from flatout.api.gpu_check import check_gpu
from flatout.machine import nvml

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]

GIB = 2**30


def at_work(seconds):
    """Keeps the card busy without running far ahead of it."""
    x = torch.randn(4096, 4096, device="cuda")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            x = torch.tanh(x @ x)
        torch.cuda.synchronize()


def test_the_monitor_agrees_with_the_driver():
    """Property 6: against looks of this test's own, at the same time."""
    torch.zeros(1, device="cuda")
    told = []
    with PerformanceMonitor(every_s=0.2) as monitor, nvml.looks() as look:
        at_work(1.5)
        monitor._card.accounts.forget()
        for _ in range(10):
            at_work(0.3)
            told.append(look()[monitor.report().device_index])
    report = monitor.report()
    mean = sum(gpu.utilisation for gpu in told) / len(told)
    assert report.device == torch.cuda.get_device_name()
    assert abs(report.utilisation.mean - mean) <= 10
    assert report.utilisation.mean > 60
    used = [gpu.memory_total_bytes - gpu.memory_free_bytes for gpu in told]
    assert report.memory_used_bytes.high == pytest.approx(max(used), rel=0.02)
    assert report.allocated_peak_bytes <= report.memory_used_bytes.high
    assert report.power_w.mean > 0
    assert report.change.used_after_bytes >= report.allocated_bytes


def test_a_step_never_waits_for_the_device():
    """torch itself raises where something waits; the loss is still read, a little later."""
    loss = torch.full((), 2.5, device="cuda")
    with PerformanceMonitor(every_s=0.0) as monitor:
        monitor.step(1, loss)  # makes the pinned buffer
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(50):
                monitor.step(8, loss)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
    assert monitor.report().losses[0][1] == 2.5


def test_a_leak_is_told():
    kept = []
    with PerformanceMonitor(every_s=0.0) as monitor:
        for _ in range(200):
            kept.append(torch.zeros(1 << 20, device="cuda"))
            monitor.step(1)
    assert any(sentence.startswith("AP512") for sentence in monitor.advice())


class Wide(torch.nn.Module):
    """Activations of 8 MiB a sample: a card of six gigabytes holds some hundred."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(256, 1 << 20), torch.nn.Linear(1 << 20, 1)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


@pytest.fixture
def six_gigabytes():
    total = torch.cuda.get_device_properties(0).total_memory
    fraction = 6 * GIB / total
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(fraction)
    yield fraction
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_the_batch_for_six_gigabytes_never_runs_out_afterwards(six_gigabytes):
    """Property 7: a cap on a large card imitates the memory of a small one, not its speed."""
    torch.manual_seed(0)
    model = Wide().cuda()
    before = [parameter.detach().clone().cpu() for parameter in model.parameters()]
    sample = torch.randn(8, 256)
    size, told = BatchSizeOptimizer(model, {"gpu_memory_fraction": six_gigabytes}).find_optimal_batch_size(sample, 99.0)
    assert size >= 1
    assert told.peak_bytes <= 6 * GIB * 0.92
    assert all(torch.equal(old, new.cpu()) for old, new in zip(before, model.parameters(), strict=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)
    batch = sample.repeat(size // 8 + 1, 1)[:size].cuda()
    for _ in range(500):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert torch.cuda.memory_stats()["num_ooms"] == sum(not trial.ran for trial in told.trials)


def test_utilisation_decides_where_it_can():
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda()
    size, told = BatchSizeOptimizer(model).find_optimal_batch_size(torch.randn(8, 512), 30.0)
    chosen = next(trial for trial in told.trials if trial.size == size)
    assert isinstance(told.gpu_utilization, float)
    assert told.target_reached == (chosen.utilisation >= 30.0)
    assert chosen.samples_per_s >= 0.98 * told.best_samples_per_s


def test_the_gpu_against_the_processor():
    """Property 4, on flatout's own small net."""
    compared = GPUPerformanceAnalyzer().compare_cpu_vs_gpu_performance(batch_size=256)
    assert compared.speedup == pytest.approx(compared.gpu_samples_per_s / compared.cpu_samples_per_s)
    assert compared.meets_target, compared.reason
    metrics = GPUPerformanceAnalyzer().benchmark_training_speed(batch_size=256)
    assert 0 < metrics.gpu_utilization <= 100
    assert 0 < metrics.memory_utilization <= 100
    assert metrics.power_consumption > 0


def test_the_functional_test_passes():
    report = check_gpu()
    assert report.passed, str(report)
    assert {check.name: check.status for check in report.checks}["compile"] in ("ok", "skipped")
