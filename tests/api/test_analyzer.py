"""The analyzer: the driver's own figures (property 6), and an honest account where there is no GPU."""

from __future__ import annotations

import dataclasses
import sys
import typing

import pytest
from recorded_nvml import RecordedNvml

from flatout.base.records import Missing
from flatout.machine import nvml

torch = pytest.importorskip("torch")

from flatout.api import refusals
from flatout.api.analyzer import GPUPerformanceAnalyzer, PerformanceMetrics


@pytest.fixture
def door(monkeypatch):
    fake = RecordedNvml()
    fake.now = {"utilisation": 87, "used": 12 << 30, "power": 432.1, "temperature": 61}
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@pytest.fixture
def nobody(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)


def test_utilisation_is_what_the_driver_says(door):
    told = GPUPerformanceAnalyzer().measure_gpu_utilization(0.3)
    with nvml.looks() as look:
        (seen,) = look()
    assert told.device == door.card.name
    assert told.gpu_utilization.mean == told.gpu_utilization.high == seen.utilisation == 87
    assert told.power_w.mean == pytest.approx(432.1)
    assert (told.temperature_c.mean, told.sm_clock_max_mhz) == (61, 1980)
    assert 1 <= told.gpu_utilization.looks <= 8


def test_memory_is_what_the_driver_says(door):
    told = GPUPerformanceAnalyzer().analyze_memory_usage()
    assert (told.total, told.used) == (door.card.memory_total_bytes, 12 << 30)
    assert told.free == told.total - told.used
    assert "total" not in told.missing
    assert told.utilization == pytest.approx(100 * (12 << 30) / told.total)
    assert told.processes == []


def test_without_a_gpu_everything_has_its_reason(nobody):
    analyzer = GPUPerformanceAnalyzer()
    watched = analyzer.measure_gpu_utilization(0.05)
    assert watched.gpu_utilization is watched.device is watched.sm_clock_mhz is None
    assert watched.missing["gpu_utilization"].reason == watched.missing["device"].reason == "nvml-package-missing"
    memory = analyzer.analyze_memory_usage()
    assert memory.total is memory.allocated is memory.processes is None
    assert memory.missing["total"].reason == memory.missing["allocated"].reason == "nvml-package-missing"
    for told in (watched, memory):
        figures = {each.name: getattr(told, each.name) for each in dataclasses.fields(told)}
        assert {name for name, figure in figures.items() if figure is None} == set(told.missing)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_on_a_processor_nothing_is_made_up(nobody):
    analyzer = GPUPerformanceAnalyzer()
    compared = analyzer.compare_cpu_vs_gpu_performance(batch_size=4, seconds=0.02)
    assert compared.cpu_samples_per_s > 0
    assert compared.gpu_samples_per_s is compared.speedup is compared.meets_target is None
    assert compared.missing["speedup"].reason == "no-device"
    assert "nothing to compare" in compared.reason
    metrics = analyzer.benchmark_training_speed(batch_size=4, seconds=0.02)
    assert metrics.training_speed > 0
    assert (metrics.device, metrics.batch_size, metrics.workload) == ("cpu", 4, "flatout-cnn")
    for name in ("gpu_utilization", "memory_utilization", "throughput_improvement", "power_consumption"):
        assert getattr(metrics, name) is None, name
        assert metrics.missing[name] == Missing("no-device"), name


def test_a_model_of_ones_own_is_timed_and_left_alone(nobody):
    torch.manual_seed(3)
    model = torch.nn.Linear(8, 2)
    before, generator = [parameter.detach().clone() for parameter in model.parameters()], torch.get_rng_state()
    told = GPUPerformanceAnalyzer(model, torch.ones(16, 8)).benchmark_training_speed(seconds=0.02)
    assert (told.batch_size, told.workload) == (16, "Linear")
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), generator)


def test_the_figures_are_those_of_the_design_document():
    """Plain numbers or None, in the document's order; whatever else there is comes after them."""
    named = ["gpu_utilization", "memory_utilization", "training_speed", "throughput_improvement", "power_consumption"]
    hints = typing.get_type_hints(PerformanceMetrics)
    assert [each.name for each in dataclasses.fields(PerformanceMetrics)][:5] == named
    assert all(hints[name] in (float, float | None) for name in named)
    assert hints["training_speed"] is float


def test_what_cannot_be_meant(nobody):
    with pytest.raises(refusals.ArgumentTypeError, match="sample_data must be given"):
        GPUPerformanceAnalyzer(torch.nn.Linear(2, 2))
    with pytest.raises(refusals.ArgumentTypeError, match=r"model must be torch\.nn\.Module"):
        GPUPerformanceAnalyzer("model", torch.ones(2, 2)).benchmark_training_speed()
    with pytest.raises(refusals.NoParametersError, match="model has no trainable parameters"):
        GPUPerformanceAnalyzer(torch.nn.ReLU(), torch.ones(2, 2)).benchmark_training_speed()
    with pytest.raises(refusals.ArgumentValueError, match="seconds cannot be -1"):
        GPUPerformanceAnalyzer().measure_gpu_utilization(-1)
    with pytest.raises(refusals.ArgumentValueError, match="batch_size cannot be 0"):
        GPUPerformanceAnalyzer().compare_cpu_vs_gpu_performance(batch_size=0)
