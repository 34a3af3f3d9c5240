"""A session as it would be shown: up to sixteen recorded cards and a training. Only the door to NVML is faked."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from test_follow import Agent

from _flatout_agent import wire
from flatout.machine import host
from flatout.machine.host import Counters, Strain
from flatout.watch.feed import Feed
from flatout.watch.session import Session

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "machine"))
from fake_nvml import H200, MIB, FakeNvml

WALL = 1_760_000_000.0
OWN_PID = 1  # is always there
RUN = "20260101-000000-abcd"


class Clock:
    def __init__(self):
        self.passed = 0.0

    def wall(self):
        return WALL + self.passed

    def monotonic(self):
        return self.passed

    def sleep(self, seconds):
        self.passed += seconds


def card(index=0, second=0, **changed):
    """The recorded H200 at work: its load goes up and down a little."""
    wave = (7 * second + 13 * index) % 11
    own = [SimpleNamespace(pid=OWN_PID, usedGpuMemory=(40_000 + 8 * second) * MIB)] if index == 0 else []
    other = [SimpleNamespace(pid=4_000_000 + index, usedGpuMemory=9_000 * MIB)] if index % 3 == 0 else []
    return {
        **H200,
        "UUID": f"GPU-{index:08d}-0000-0000-0000-000000000000",
        "UtilizationRates": SimpleNamespace(gpu=88 + wave if index % 4 != 3 else 3, memory=40),
        "MemoryInfo": SimpleNamespace(total=143771 * MIB, free=(143771 - 60_000 - 8 * second) * MIB),
        "Temperature": 61 + wave // 2,
        "PowerUsage": 630_000 + 6_000 * wave,
        "ClockInfo": 1755 + 5 * wave,
        "CurrentClocksEventReasons": 4 if index % 2 == 0 else 0,
        "TemperatureThreshold": 92,
        "PcieThroughput": 1_250_000,
        "ComputeRunningProcesses": [*own, *other],
        **changed,
    }


def counted(second):
    """The host's counters, as they rise on a machine with four cores."""
    return Counters(
        cores=tuple((second * (0.2 + 0.1 * core) + (second * (core + 3)) % 5 * 0.05, 1.0 * second) for core in range(4)),
        memory=(6 << 30, 32 << 30),
        swap=(0, 0),
        shared_memory=(1 << 30, 16 << 30),
        disk=(second * 90_000_000 + second % 7 * 20_000_000, second * 3_000_000),
        network=(second * 40_000, second * 9_000),
        strain=Strain(swapped_in_bytes=0, swapped_out_bytes=0, io_stalled_s=0.01 * second),
    )


class World:
    """`seconds` have passed when it is handed over; `step()` is one more."""

    def __init__(self, tmp_path, monkeypatch, cards=1, seconds=0, training=True, hot=range(60, 100)):
        self.clock, self.hot, self.second = Clock(), hot, 0
        self.fake = FakeNvml(*[card(index) for index in range(cards)]) if cards else None
        monkeypatch.setitem(sys.modules, "pynvml", self.fake)
        monkeypatch.setattr(host, "counters", lambda: counted(self.second))
        self.folder = tmp_path / ".flatout" / "runs" / RUN
        self.agent = None
        if training:
            self.folder.mkdir(parents=True)
            (self.folder / "job.json").write_bytes(wire.job_text(wire.new_job(str(self.folder), WALL)))
            self.agent = Agent(self.folder, pid=OWN_PID)
        environ = {"FLATOUT_HISTORY": str(tmp_path / "kept"), "HOME": str(tmp_path)}
        self.session = Session(self.clock, tmp_path, environ)
        self.feed = Feed(self.session)
        self.steps, self.picture = 0, None
        for _ in range(seconds):
            self.picture = self.step()

    def step(self):
        self.second += 1
        hot = self.second in self.hot
        for index in range(len(self.fake.cards) if self.fake else 0):
            slower = {"ClockInfo": 1100, "CurrentClocksEventReasons": 0x40, "Temperature": 91} if hot and index == 0 else {}
            self.fake.cards[index].update(card(index, self.second, **slower))
        lasts = 0.9 * (1755 / 1100 if hot else 1.0) + 0.1
        self.steps += 20
        self.clock.sleep(lasts)
        if self.agent is not None:
            phases = {"forward": 0.5 * lasts, "backward": 0.3 * lasts, "optimizer": 0.1 * lasts, "input": 0.1 * lasts}
            losses = [[20 * place, 2.3 / (1 + place / 20)] for place in range(1, self.second + 1)][-40:]
            self.agent.window(self.clock.passed, self.steps, phases=phases, losses=losses, turns=self.steps // 1000)
        return self.feed.turn()
