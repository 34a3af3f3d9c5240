"""The measured batch size: the pure choice over imagined cards (property 7), and real trials on the processor."""

from __future__ import annotations

import contextlib
import random

import pytest
from examples import given, st

from flatout.base.records import Missing
from flatout.tune.batch.size_policy import BatchPolicy, BatchProbe
from flatout.tune.batch.utilisation_target import Target, next_target_size, take
from flatout.tune.search.questions_and_answers import BatchGoal

torch = pytest.importorskip("torch")

from flatout.api import refusals, trial_batch
from flatout.api.batch_size import BatchSizeOptimizer
from flatout.api.kept_state import kept
from flatout.api.training_trial import TrainingTrial, out_of_memory
from flatout.base.errors import UsageError

GIB = 2**30


def target(percent=85.0, limit=6 * GIB, headroom=0.08, largest=4096):
    policy = BatchPolicy(goal=BatchGoal.GROW, start=8, largest=largest, memory_limit=limit, headroom=headroom)
    return Target(percent=percent, policy=policy)


def explored(wanted, peak, rate, busy):
    """The loop of the optimizer over an imagined card."""
    probes, seen = [], {}
    while (size := next_target_size(probes, seen, wanted)) is not None:
        fits = peak(size) <= wanted.policy.memory_limit
        probes.append(
            BatchProbe(
                size=size,
                ran=fits,
                peak=int(peak(size)) if fits else Missing("oom"),
                rate=float(rate(size)) if fits else Missing("oom"),
            )
        )
        seen[size] = busy(size) if fits else Missing("oom")
        assert len(probes) < 30
    return probes, seen


@given(
    base=st.floats(0.1 * GIB, 4 * GIB),
    each=st.floats(GIB / 5000, GIB / 4),
    half=st.floats(1, 500),
    headroom=st.sampled_from([0.08, 0.15]),
)
def test_the_smallest_busy_batch_near_the_best_and_inside_six_gigabytes(base, each, half, headroom):
    """Property 7."""
    wanted = target(headroom=headroom)

    def peak(size):
        return base + each * size

    probes, seen = explored(
        wanted, peak, rate=lambda size: 1000 * size / (size + half), busy=lambda size: 100.0 * size / (size + half / 4)
    )
    taken = take(probes, seen, wanted)
    if peak(1) > wanted.policy.memory_goal:
        assert (taken.size, taken.reason) == (0, "nothing-fits")
        return
    assert peak(taken.size) <= wanted.policy.memory_goal
    rates = {probe.size: probe.rate for probe in probes if probe.ran and peak(probe.size) <= wanted.policy.memory_goal}
    best = max(rates.values())
    assert rates[taken.size] >= 0.98 * best
    if taken.reason == "reached":
        assert seen[taken.size] >= 85.0
    for size, rate in rates.items():
        if size < taken.size and rate >= 0.98 * best:
            assert seen[size] < 85.0
            assert taken.reason == "reached"


def test_a_target_out_of_reach_is_said_and_costs_no_speed():
    wanted = target()
    probes, seen = explored(wanted, lambda size: size * GIB / 1000, lambda size: 500.0 * min(size, 64), lambda size: 40.0)
    taken = take(probes, seen, wanted)
    assert (taken.size, taken.reason) == (64, "out-of-reach")
    # It went on to the memory's end to look for it.
    assert max(probe.size for probe in probes if probe.ran) > 5000 * 0.92 or max(probe.size for probe in probes) >= 4096


def test_a_larger_batch_is_taken_for_the_target_only_where_it_is_as_fast():
    wanted = target()
    probes, seen = explored(
        wanted, lambda size: size * GIB / 1000, lambda size: 500.0 * min(size, 64), lambda size: 90.0 if size >= 512 else 50.0
    )
    assert (take(probes, seen, wanted).size, take(probes, seen, wanted).reason) == (512, "reached")


def test_where_utilisation_is_not_known_throughput_decides():
    wanted = target()
    probes, seen = explored(
        wanted, lambda size: size * GIB / 1000, lambda size: 500.0 * min(size, 64), lambda size: Missing("no-device")
    )
    assert (take(probes, seen, wanted).size, take(probes, seen, wanted).reason) == (64, "unknown")
    assert max(probe.size for probe in probes) == 256  # and no further


class Net(torch.nn.Module):
    """With everything that a forward pass may change: batch statistics, a counter, a tensor of its own, draws."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(32, 4)
        )
        self.calls, self.last = 0, torch.zeros(1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.last = x.mean().detach()
        self.seen = self.seen + 1
        return self.body(x)


def state(model, optimizer):
    return {
        "weights": [parameter.detach().clone() for parameter in model.parameters()],
        "buffers": [buffer.clone() for buffer in model.buffers()],
        "grads": [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()],
        "optimizer": [value.clone() for part in optimizer.state.values() for value in part.values()],
        "generator": [torch.get_rng_state()],
    }


def same(one, other):
    return all(
        (a is None and b is None) or torch.equal(a, b) for name in one for a, b in zip(one[name], other[name], strict=True)
    )


def trained():
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 16)), torch.randint(0, 4, (8,)))
    loss.backward()
    optimizer.step()
    return model, optimizer


def test_the_model_comes_back_bit_for_bit_and_the_answer_is_measured():
    model, optimizer = trained()
    model.eval()
    before, attributes, python = state(model, optimizer), (model.calls, model.last, model.training), random.getstate()
    kinds = {id(parameter) for parameter in model.parameters()}
    search = BatchSizeOptimizer(
        model, {"batch_size": 8, "epochs": 3}, loss=torch.nn.functional.cross_entropy, optimizer=optimizer, largest=64
    )
    size, told = search.find_optimal_batch_size((torch.randn(8, 16), torch.randint(0, 4, (8,))), seconds=0.02)
    assert size == told.batch_size
    assert size in [trial.size for trial in told.trials]
    assert told.samples_per_s >= 0.98 * told.best_samples_per_s
    assert told.target_reached == told.gpu_utilization == Missing("no-device")  # nobody can know it on a processor
    assert "is unknown" in told.reason
    after = state(model, optimizer)
    assert same({name: before[name] for name in before if name != "generator"}, after | {"generator": []})
    assert (model.calls, model.last, model.training) == attributes
    assert {id(parameter) for parameter in model.parameters()} == kinds
    assert random.getstate() == python
    model.train()
    model(torch.randn(8, 16))  # it still trains


def test_generators_go_on_where_they_were():
    model, _ = trained()
    torch.manual_seed(5)
    random.seed(5)
    expected = torch.rand(3), random.random()
    torch.manual_seed(5)
    random.seed(5)
    with kept(torch, model):
        torch.rand(100)
        random.random()
    assert torch.equal(torch.rand(3), expected[0])
    assert random.random() == expected[1]


def test_also_after_an_error_of_the_model():
    model, optimizer = trained()
    before = state(model, optimizer)
    with contextlib.suppress(ZeroDivisionError), kept(torch, model):
        model(torch.randn(4, 16)).sum().backward()
        model.body[0].weight.data.zero_()
        raise ZeroDivisionError
    assert same(before, state(model, optimizer))


def test_memory_that_runs_out_is_an_answer(monkeypatch):
    class Hungry(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            if len(x) > 12:
                raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory")
            return self.layer(x)

    size, told = BatchSizeOptimizer(Hungry()).find_optimal_batch_size(torch.randn(4, 4), seconds=0.01)
    assert 8 <= size <= 12
    failed = [trial for trial in told.trials if not trial.ran]
    assert failed
    assert all(trial.reason == "out-of-memory" and trial.size > 12 for trial in failed)

    class Hopeless(Hungry):
        def forward(self, x):
            raise RuntimeError("CUDA out of memory.")

    size, told = BatchSizeOptimizer(Hopeless()).find_optimal_batch_size(torch.randn(4, 4), seconds=0.01)
    assert size == 0
    assert [trial.size for trial in told.trials] == [8, 4, 2, 1]
    assert "Not even one sample" in told.reason
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_another_error_is_the_callers_to_see():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        BatchSizeOptimizer(torch.nn.Linear(4, 4)).find_optimal_batch_size(torch.randn(4, 5))


def test_batches_of_any_shape_grow():
    rows = torch.arange(6.0).reshape(3, 2)
    assert trial_batch.of_size(torch, rows, 5, "cpu").tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]
    batch = {"ids": torch.zeros(3, 7), "labels": torch.zeros(3), "scale": torch.ones(2), "name": "x"}
    grown = trial_batch.of_size(torch, batch, 8, "cpu")
    assert (grown["ids"].shape, grown["labels"].shape, grown["scale"].shape, grown["name"]) == ((8, 7), (8,), (2,), "x")
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=2)
    assert trial_batch.split(trial_batch.of_size(torch, trial_batch.first_batch(torch, loader), 2, "cpu"))[1] is None


@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (lambda: BatchSizeOptimizer(lambda x: x), refusals.ArgumentTypeError, "model must be torch.nn.Module"),
        (lambda: BatchSizeOptimizer(torch.nn.ReLU()), refusals.NoParametersError, "model has no trainable parameters"),
        (lambda: BatchSizeOptimizer(torch.nn.Linear(2, 2), ["x"]), refusals.ArgumentTypeError, "config must be"),
        (lambda: BatchSizeOptimizer(torch.nn.Linear(2, 2), {"use_ampp": 1}), refusals.UnknownNameError, "did you mean use_amp"),
        (lambda: BatchSizeOptimizer(torch.nn.Linear(2, 2), {"precision": "bf61"}), UsageError, "did you mean bf16"),
        (lambda: BatchSizeOptimizer(torch.nn.Linear(2, 2), largest=0), refusals.ArgumentValueError, "largest"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant(make, kind, says):
    with pytest.raises(kind, match=says):
        make()


def test_what_cannot_be_searched():
    search = BatchSizeOptimizer(torch.nn.Linear(2, 2))
    with pytest.raises(refusals.ArgumentTypeError, match="sample_data"):
        search.find_optimal_batch_size("data")
    with pytest.raises(refusals.ArgumentValueError, match="target_gpu_util"):
        search.find_optimal_batch_size(torch.randn(2, 2), target_gpu_util=850)
    with pytest.raises(refusals.LossNotFiniteError, match="nan"):
        search.find_optimal_batch_size(torch.full((2, 2), float("nan")))
    with pytest.raises(refusals.ArgumentValueError, match="loss is needed"):
        TrainingTrial(torch, torch.nn.Linear(2, 2))._stand_in({"ids": torch.zeros(3, dtype=torch.int64)}, None)
