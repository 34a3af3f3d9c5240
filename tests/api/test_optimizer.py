"""What is derived from a machine's facts: device (property 1), batch for six gigabytes (property 7), precision, memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import given, settings, st

from flatout.api import refusals
from flatout.api.optimizer import GPUOptimizer, MixedPrecisionConfig
from flatout.base import records
from flatout.base.errors import UsageError
from flatout.base.records import Missing
from flatout.base.words import LANGUAGES
from flatout.machine.choose import kind_of
from flatout.machine.machine_facts import Application, Driver, Facts, Gpu, Hardware, PciDevice, System
from flatout.tune.batch import estimate

GIB = 1 << 30
H200 = Path(__file__).resolve().parents[1] / "machines" / "h200.json"

CARDS = (
    ("nvidia", "NVIDIA GeForce RTX 4050 Laptop GPU"),
    ("nvidia", "NVIDIA GeForce GTX 1080"),
    ("nvidia", "NVIDIA GeForce GTX 1650"),
    ("nvidia", "Tesla T4"),
    ("nvidia", "NVIDIA H200"),
    ("nvidia", "Jetson AGX Orin"),
    ("amd", "AMD Radeon Graphics"),
    ("intel", "Intel(R) UHD Graphics 770"),
)


def machine(*names, system="Linux", environment=None, memory=6 * GIB):
    counted, gpus = {}, []
    for vendor, name in names:
        index = counted[vendor] = counted.get(vendor, -1) + 1
        gpus.append(
            Gpu(
                index=index,
                name=name,
                vendor=vendor,
                uuid=f"GPU-{vendor}{index}",
                memory_total_bytes=memory,
                memory_free_bytes=memory,
            )
        )
    return Facts(system=System(name=system), driver=Driver(gpus=gpus), application=Application(environment=environment or {}))


@given(st.lists(st.sampled_from(CARDS), min_size=2, max_size=5))
def test_the_discrete_card_comes_first(names):
    """Property 1."""
    facts = machine(*names)
    chosen = GPUOptimizer(facts=facts).optimize_device_selection()
    kinds = {kind_of(gpu, ()) for gpu in facts.driver.gpus}
    card = next(gpu for gpu in facts.driver.gpus if (gpu.index, gpu.name) == (chosen.device_id, chosen.device_name))
    assert "discrete" not in kinds or kind_of(card, ()) == "discrete"
    assert chosen.device_name in chosen.reason
    assert chosen.memory_total == 6 * GIB


def test_the_laptop_of_the_documents():
    """An RTX 4050 beside the processor's own graphics, which is on the bus and not among the driver's cards."""
    facts = machine(("nvidia", "NVIDIA GeForce RTX 4050 Laptop GPU"))
    facts.hardware = Hardware(pci=[PciDevice(vendor="intel", kind="integrated", name="Intel(R) Iris(R) Xe Graphics")])
    chosen = GPUOptimizer(facts=facts).optimize_device_selection()
    assert (chosen.device, chosen.here, chosen.device_id) == ("cuda:0", "cuda:0", 0)
    assert chosen.compute_capability == "8.9"
    assert "Iris" in chosen.reason


def test_the_second_card_is_called_as_this_process_counts():
    facts = machine(("nvidia", "NVIDIA GeForce GTX 1080"), ("nvidia", "NVIDIA H200"))
    facts.driver.gpus[1].memory_free_bytes = facts.driver.gpus[1].memory_total_bytes = 140 * GIB
    chosen = GPUOptimizer(facts=facts).optimize_device_selection()
    assert (chosen.device, chosen.here, chosen.exports["CUDA_VISIBLE_DEVICES"]) == ("cuda:0", "cuda:1", "GPU-nvidia1")
    facts.application.environment["CUDA_VISIBLE_DEVICES"] = "1"
    assert GPUOptimizer(facts=facts).optimize_device_selection().here == "cuda:0"
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES=1, which hides"):
        GPUOptimizer(gpu_id=0, facts=facts).optimize_device_selection()
    del facts.application.environment["CUDA_VISIBLE_DEVICES"]
    assert GPUOptimizer(gpu_id="0", facts=facts).optimize_device_selection().device_id == 0
    with pytest.raises(UsageError, match=r"--gpu-id 1.* contradicts the configuration, which names 0"):
        GPUOptimizer(0, gpu_id=1, facts=facts).optimize_device_selection()
    with pytest.raises(UsageError, match="The configuration names device 5"):
        GPUOptimizer(5, facts=facts).optimize_device_selection()


def test_without_a_card_it_is_the_processor_and_the_reason():
    chosen = GPUOptimizer(facts=Facts()).optimize_device_selection()
    assert (chosen.device, chosen.here, chosen.device_id) == ("cpu", "cpu", None)
    assert chosen.memory_total == Missing("no-device")
    assert chosen.reason.startswith("CPU")
    memory = GPUOptimizer(facts=Facts()).setup_memory_optimization(0.5)
    assert (memory.applied, memory.environment) == ([], {})
    assert memory.notes


def test_on_this_very_machine():
    """Whatever it is: something to train on, and a sentence why."""
    optimizer = GPUOptimizer()
    chosen = optimizer.optimize_device_selection()
    assert chosen.reason
    assert isinstance(optimizer.configure_mixed_precision(), MixedPrecisionConfig)


@settings(max_examples=200)
@given(
    model=st.integers(1, 8 * GIB),
    memory=st.sampled_from([4, 6, 8, 12, 16, 24, 80, 141]),
    system=st.sampled_from(["Linux", "Windows"]),
)
def test_a_batch_that_fits_by_its_own_assumptions(model, memory, system):
    """Property 7: for any model, a batch for the memory at hand; twice as large would not fit, and 0 says that none does."""
    optimizer = GPUOptimizer(facts=machine(system=system))
    size = optimizer.optimize_batch_size(model, memory * GIB)
    made = size.estimate
    assert made.usable_bytes <= memory * GIB * (0.85 if system == "Windows" else 0.92)
    if size:
        assert made.fixed_bytes + size * made.per_sample_bytes <= made.usable_bytes
        assert size == estimate.MOST or made.fixed_bytes + 2 * size * made.per_sample_bytes > made.usable_bytes
    else:
        assert made.fixed_bytes + made.per_sample_bytes > made.usable_bytes
    assert optimizer.optimize_batch_size(model, 2 * memory * GIB) >= size
    assert optimizer.optimize_batch_size(2 * model, memory * GIB) <= size
    assert "estimated" in size.reason


def test_the_estimate_says_so_in_both_languages_and_takes_what_is_known():
    for language, word in (("en", "estimated"), ("zh", "估算")):
        assert language in LANGUAGES
        size = GPUOptimizer(facts=machine(), language=language).optimize_batch_size(100 << 20, 6 * GIB)
        assert word in size.reason
    # ResNet-50: 102 MB of weights
    assert GPUOptimizer(facts=machine()).optimize_batch_size(102_000_000, 6 * GIB) == 32
    assert GPUOptimizer(facts=machine()).optimize_batch_size(102_000_000, 6 * GIB, sample_bytes=10 << 20) == 256


@pytest.mark.parametrize(
    ("arguments", "kind", "name"),
    [
        (("100", 6 * GIB), TypeError, "model_size"),
        ((100.0, 6 * GIB), TypeError, "model_size"),
        ((0, 6 * GIB), ValueError, "model_size"),
        ((100, -1), ValueError, "gpu_memory"),
        ((100, 6), ValueError, "gpu_memory"),
        ((100, None), TypeError, "gpu_memory"),
    ],
)
def test_numbers_that_cannot_be_meant(arguments, kind, name):
    with pytest.raises(kind) as caught:
        GPUOptimizer(facts=machine()).optimize_batch_size(*arguments)
    assert name in str(caught.value)
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("name", "dtype", "scaler"),
    [
        ("NVIDIA GeForce RTX 4050 Laptop GPU", "bf16", False),
        ("NVIDIA H200", "bf16", False),
        ("Tesla T4", "fp16", True),
        ("NVIDIA GeForce GTX 1650", "no", False),
        ("NVIDIA GeForce GTX 1080", "no", False),
    ],
)
def test_precision_by_capability(name, dtype, scaler):
    config = GPUOptimizer(facts=machine(("nvidia", name))).configure_mixed_precision()
    assert (config.dtype, config.enabled, config.grad_scaler, config.measured) == (dtype, dtype != "no", scaler, False)
    assert name in config.reason


def test_memory_is_planned_with_more_room_on_windows():
    facts = records.read(H200, Facts)
    config = GPUOptimizer(facts=facts).setup_memory_optimization()
    assert config.total_bytes == facts.driver.gpus[0].memory_total_bytes
    assert config.usable_bytes == int(config.total_bytes * 0.92)
    assert config.environment == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    facts.system.name = "Windows"
    other = GPUOptimizer(facts=facts).setup_memory_optimization(0.5)
    assert (other.headroom, other.environment) == (0.15, {})
    assert other.usable_bytes == int(config.total_bytes * 0.5 * 0.85)
    with pytest.raises(refusals.ArgumentValueError, match="memory_fraction"):
        GPUOptimizer(facts=facts).setup_memory_optimization(80)
    with pytest.raises(refusals.ArgumentTypeError, match="facts must be Facts"):
        GPUOptimizer(facts={})
