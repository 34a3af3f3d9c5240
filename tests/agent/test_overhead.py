"""What a step of ours costs, by the hooks alone: the work they wrap is nothing, so what is left is ours."""

import time

import pytest

torch = pytest.importorskip("torch")

from _flatout_agent.core.patches import Patches
from _flatout_agent.start import install
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.step_clock import StepClock

# Microseconds a step: one fetch, two moves, one backward, one optimizer step, and the reads of an Adam over 26
# parameters, which asks each one's step count twice. 0.5 % of a 5 ms step is 25.
FEWEST, MOST = 7, 60  # rounds
LIMIT_US = 25.0
STEPS = 1000


class Nothing(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self, closure=None):
        pass


def loop(batches, optimizer, tensor, backward):
    for _ in range(STEPS):
        next(batches)
        tensor.to("cpu")
        tensor.to("cpu")
        backward()
        optimizer.step()
        for _ in range(52):
            tensor.item()


@pytest.mark.alone
def test_hooks_cost_a_few_microseconds_a_step(monkeypatch):
    from torch.utils.data import dataloader

    batch = (torch.zeros(4, 2), torch.zeros(4))
    monkeypatch.setattr(dataloader._BaseDataLoaderIter, "__next__", lambda self: batch)
    monkeypatch.setattr(torch.autograd, "backward", lambda *args, **kwargs: None)
    optimizer, tensor = Nothing([torch.zeros(1, requires_grad=True)]), torch.zeros(())
    batches = iter(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(4, 2))))

    def timed():
        began = time.perf_counter()
        loop(batches, optimizer, tensor, lambda: torch.autograd.backward())
        return (time.perf_counter() - began) / STEPS * 1e6

    patches = Patches()
    without, within, cost = [], [], LIMIT_US
    # Interleaved, and the best of each: what else runs on the machine only ever adds. So where it seems too much, look longer.
    while len(within) < FEWEST or (cost >= LIMIT_US and len(within) < MOST):
        without.append(timed())
        install(torch, Tape(StepClock(time.perf_counter_ns()), lambda now: None), patches)
        within.append(timed())
        patches.take_off()
        cost = min(within) - min(without)
    print(f"hooks cost {cost:.1f} µs a step")
    assert 0 < cost < LIMIT_US
