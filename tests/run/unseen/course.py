"""Trains for so many seconds, then looks at what a script can see of the observers, one case after the other.

    course.py SECONDS CASE...      each case is one line of JSON on stdout, the same without us
    STATES=file                    what the observers did when each case began; for the test, not for the comparison

Between two cases it trains on until the observers have come to rest again: a case that saves or compiles wakes them.
"""

import gc
import importlib
import json
import os
import sys
import time
import types

import torch
from torch.utils.data import DataLoader, Dataset

LONGEST_SETTLE_S = 45.0


class Data(Dataset):
    """Ordinary batches, until a case puts something else in their place: the loader is the one that trains all the time."""

    def __init__(self):
        self.made = None
        self.given = 0

    def __len__(self):
        return 10**9

    def __getitem__(self, index):
        if self.made is not None:
            return self.made()
        self.given += 1
        return torch.full((4, 3), self.given % 7 / 7.0)


def as_it_is(batch):
    """Not torch's own: then how many samples a batch has only the batch can tell."""
    return batch


class Training:
    def __init__(self):
        torch.manual_seed(0)
        self.data = Data()
        self.batches = iter(DataLoader(self.data, batch_size=None, collate_fn=as_it_is))
        self.begin_again()

    def begin_again(self):
        self.data.given = 0
        torch.manual_seed(1)
        with torch.no_grad():
            if not hasattr(self, "net"):
                self.net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
                self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
            for parameter in self.net.parameters():
                parameter.copy_(torch.rand(parameter.shape) - 0.5)

    def step(self, take=as_it_is):
        x = take(next(self.batches))
        loss = self.net(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def steps(self, number, take=as_it_is):
        for _ in range(number):
            self.step(take)

    def for_seconds(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step()

    def until_at_rest(self):
        observers, end = observers_of_the_run(), time.monotonic() + LONGEST_SETTLE_S
        while observers and not at_rest(observers) and time.monotonic() < end:
            self.step()
        return {name: bool(value) for name, value in told(observers).items()}

    def weights(self):
        return [float(value) for parameter in self.net.parameters() for value in parameter.detach().flatten()]


def observers_of_the_run():
    """The agent's tape and its Resting, where there is an agent."""
    kinds = ("_flatout_agent.timeline.event_buffer", "Tape"), ("_flatout_agent.timeline.hooks.hook_suspension", "Resting")
    return {type(one).__name__: one for one in gc.get_objects() if (type(one).__module__, type(one).__name__) in kinds}


def told(observers):
    if not observers:
        return {}
    tape, resting = observers["Tape"], observers["Resting"]
    return {"rests": resting._on_tensors.resting, "glances": not tape.whole, "compiled": tape.dynamo}


def at_rest(observers):
    state = told(observers)
    return state["rests"] and (state["glances"] or state["compiled"])


def device_comes_into_use():
    """As far as the observers can see: those on tensors are on from here on."""
    part = types.ModuleType("torch.hpu")
    part.is_initialized = lambda: True
    sys.modules["torch.hpu"] = part


def main():
    seconds, names = float(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    cases = [importlib.import_module(module) for module in ("cases", "tracing_cases")]
    device_comes_into_use()
    training, states = Training(), {}
    training.for_seconds(seconds)
    for name in names:
        states[name] = training.until_at_rest() if seconds else told(observers_of_the_run())
        training.begin_again()
        case = next(getattr(module, name) for module in cases if hasattr(module, name))
        print(json.dumps({name: case(training, 700 if seconds else 24)}), flush=True)
        training.data.made = None
    training.begin_again()
    training.steps(20)
    print(json.dumps({"learned": training.weights()}))
    if "STATES" in os.environ:
        with open(os.environ["STATES"], "w", encoding="ascii") as file:
            json.dump(states, file)


if __name__ == "__main__":
    main()
