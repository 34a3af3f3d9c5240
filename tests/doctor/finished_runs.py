"""Finished runs in a few words: one with each planted cause, and healthy ones of every kind."""

from __future__ import annotations

from flatout.base.records import Missing, replace
from flatout.doctor import after_run
from flatout.machine.machine_facts import Gpu, HostMemory, Interpreter, Machine, Processor, System
from flatout.machine.run_look import (
    BlockingRead,
    Copies,
    CoreUse,
    DeviceBusy,
    DeviceLag,
    DeviceLook,
    DeviceMemory,
    DeviceMix,
    GpuChange,
    GpuDuring,
    HostStrain,
    LoaderUse,
    Losses,
    MemoryGrowth,
    OutOfMemory,
    PlacedTensor,
    Regime,
)
from flatout.measure import bound
from flatout.measure.model import Summary, TorchBuild

GIB, MIB = 1 << 30, 1 << 20
NO_REASON = Missing("not-reported")

MACHINE = Machine(
    system=System(name="Linux"),
    processor=Processor(cores=16, usable=16.0),
    memory=HostMemory(total_bytes=64 * GIB, available_bytes=40 * GIB),
    python=Interpreter(path="/usr/bin/python", version="3.12.3"),
    driver="580.95.05",
    cuda="13.0",
    gpus=[Gpu(index=0, name="NVIDIA H200", capability="9.0", memory_total_bytes=140 * GIB, memory_free_bytes=139 * GIB)],
)

WINDOWS = replace(MACHINE, system=System(name="Windows"), driver="580.97")
SPILLED = DeviceMemory(total_bytes=24 * GIB, peak_bytes=26 * GIB, peak_reserved_bytes=28 * GIB)
WELL_FILLED = DeviceMemory(total_bytes=24 * GIB, peak_bytes=19 * GIB, peak_reserved_bytes=21 * GIB)

PLAIN = Regime(autocast=False, tf32=False, dtype="float32", compiled=False, device="cuda:0", capability="9.0")
MIXED = Regime(autocast=True, tf32=True, dtype="float32", compiled=False, device="cuda:0", capability="9.0")
# fp32 where autocast cannot be told: TF32 alone is advised then.
HALF_PLAIN = Regime(tf32=False, dtype="float32", device="cuda:0", capability="9.0")
FAST = {"input": 0.1, "copy": 0.1, "forward": 3.0, "backward": 5.0, "optimizer": 1.8}


def looks(starved: float, busy: float, **more) -> DeviceLook:
    return DeviceLook(
        lag=DeviceLag(samples=100, starved=round(100 * starved), mean_s=0.001),
        busy=DeviceBusy(busy_s=busy, span_s=1.0),
        **{"regime": MIXED, "memory": DeviceMemory(total_bytes=140 * GIB, allocated_bytes=GIB, peak_bytes=2 * GIB), **more},
    )


def finished(device: DeviceLook | None = None, phases: dict[str, float] | None = None, **more) -> Summary:
    device = device or looks(0.02, 0.98)
    phases = {**dict.fromkeys(("startup", *after_run.TRAINING_PHASES), 0.0), **(phases or FAST)}
    steps = more.pop("steps", 1000)
    judged = bound.judge(phases, device, steps)
    whole = sum(phases.values())
    values = {
        "run_id": "r",
        "command": ["python", "train.py"],
        "started": 0.0,
        "wall_s": whole,
        "exit_code": 0,
        "signal": None,
        "steps": steps,
        "samples": 32_000,
        "samples_per_s": 3000.0,
        "step_s": whole / max(1, steps),
        "warmup_steps": 3,
        "phases": phases,
        "processes": 1,
        "torch": TorchBuild(version="2.9.0", cuda="12.8"),
        "machine": MACHINE,
        "notes": [],
        "bound_by": judged.by,
        "bound_evidence": judged.evidence,
        "device": device,
    }
    return Summary(**{**values, **more})


def growth(per_step: float, steps: int = 750, late: float = 0.33, significance: float = 9.0) -> MemoryGrowth:
    grown = int(per_step * steps)
    return MemoryGrowth(
        bytes_per_step=float(per_step),
        low_bytes_per_step=0.9 * per_step,
        significance=significance,
        grown_bytes=grown,
        late_bytes=int(late * grown),
        steps=steps,
        points=48,
    )


def throttled(reason: str, looks: int, used: bool = True) -> GpuChange:
    during = GpuDuring(
        index=0,
        name="NVIDIA H200",
        samples=70,
        working=60,
        held_back={reason: looks},
        temperature_max_c=91,
        sm_clock_held_mhz=700,
        sm_clock_max_mhz=1980,
    )
    return GpuChange(index=0, name="NVIDIA H200", used=used, during=during)


def curve(*values: float) -> Losses:
    return Losses(points=list(enumerate(values)), not_finite_from=NO_REASON)


READ = BlockingRead(site="train.py:88", what="item", total_s=3.1, count=1000)
WAITING = {"input": 8.0, "forward": 1.0, "backward": 0.7, "optimizer": 0.3}
EIGHT_WORKERS = [LoaderUse(site="train.py:41", workers=8, wait_s=8.0, batches=1000)]
COPYING = {"copy": 6.0, "forward": 2.0, "backward": 2.0}
UNPINNED = Copies(pinned=0, unpinned=1000, blocking=1000, bytes=10 * GIB)
OOM = OutOfMemory(
    step=12,
    message="CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.00 GiB is "
    "free. Of the allocated memory 21.00 GiB is allocated by PyTorch, and 0.30 GiB is reserved by PyTorch but unallocated.",
    batch=64,
)
MIX = DeviceMix(
    site="train.py:90",
    message="Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    tensors=[PlacedTensor(name="model.fc.weight", device="cuda:0"), PlacedTensor(name="x", device="cpu")],
)

# What was planted, and the run that it gives: the finding must come first.
PLANTED = {
    "dataloader-bottleneck": finished(looks(0.9, 0.2), WAITING, loaders=[LoaderUse(site="t.py:1", workers=0, wait_s=8.0)]),
    "slow-storage": finished(looks(0.9, 0.2), WAITING, loaders=EIGHT_WORKERS, host=HostStrain(io_stalled_s=8.5)),
    "hidden-synchronisation": finished(
        looks(0.8, 0.5, reads=[READ]), {"device_wait": 3.1, "forward": 3.0, "backward": 3.0, "optimizer": 0.9}
    ),
    "tf32-off": finished(looks(0.02, 0.98, regime=HALF_PLAIN)),
    "full-precision": finished(looks(0.02, 0.98, regime=PLAIN)),
    "pageable-batches": finished(looks(0.4, 0.4, copies=UNPINNED), COPYING),
    "tiny-kernels": finished(looks(0.97, 0.9, kernels_per_step=310.0)),
    "memory-leak": finished(looks(0.02, 0.98, growth=growth(2 * MIB))),
    "exploding-loss": finished(losses=curve(*[1.0] * 20, *[50.0] * 10)),
    "throttled-run": finished(gpus=[throttled("HW_THERMAL_SLOWDOWN", 30)]),
    "cpu-contended": finished(
        looks(0.9, 0.3, cores=CoreUse(span_s=10.0, running_s=6.0, queueing_s=3.5)), {"forward": 5.0, "backward": 5.0}
    ),
    "host-swapping": finished(host=HostStrain(swapped_in_bytes=4 * GIB, swapped_out_bytes=5 * GIB)),
    "allocator-retries": finished(looks(0.02, 0.98, memory=DeviceMemory(retries=40, peak_bytes=22 * GIB))),
    "sysmem-fallback": finished(looks(0.02, 0.98, memory=SPILLED), machine=WINDOWS),
    "out-of-memory": finished(out_of_memory=OOM, steps=12),
    "device-mismatch": finished(device_mix=MIX, steps=0),
}

HEALTHY = {
    "compute-bound, mixed precision": finished(),
    "compute-bound with .item() in each step": finished(
        looks(0.02, 0.99, reads=[BlockingRead(site="train.py:9", what="item", total_s=9.0, count=1000)]),
        {"device_wait": 9.0, "forward": 0.4, "backward": 0.4, "optimizer": 0.2},
    ),
    "a loss that is read now and then": finished(
        looks(0.9, 0.3, reads=[BlockingRead(site="train.py:9", what="item", total_s=0.2, count=20)]),
        {"input": 4.0, "forward": 6.0},
    ),
    "bf16 model, TF32 off": finished(looks(0.02, 0.98, regime=Regime(tf32=False, dtype="bfloat16", capability="9.0"))),
    "a card before TF32 and tensor cores": finished(looks(0.02, 0.98, regime=Regime(
        autocast=False, tf32=False, dtype="float32", capability="6.1"))),
    "fp32, not bound by compute": finished(looks(0.9, 0.2, regime=PLAIN), {"input": 1.9, "copy": 4.1, "forward": 4.0}),
    "small unpinned copies": finished(looks(0.02, 0.98, copies=UNPINNED)),
    "a loader that is slow and still in time": finished(
        looks(0.05, 0.97), {"input": 4.0, "device_wait": 4.0, "forward": 2.0}, loaders=EIGHT_WORKERS),
    "copies beside a device that is always busy": finished(
        looks(0.05, 0.97, copies=UNPINNED), {"copy": 2.0, "device_wait": 6.0, "forward": 2.0}),
    "large pinned copies": finished(looks(0.4, 0.4, copies=Copies(pinned=1000, unpinned=3, bytes=GIB)), COPYING),
    "memory that comes with the first steps": finished(looks(0.02, 0.98, growth=growth(2 * MIB, late=0.0))),
    "memory that wavers": finished(looks(0.02, 0.98, growth=growth(2 * MIB, significance=1.5))),
    "memory that grows by bytes": finished(looks(0.02, 0.98, growth=growth(200.0, steps=100_000))),
    "one retry": finished(looks(0.02, 0.98, memory=DeviceMemory(retries=1))),
    "a falling loss": finished(losses=curve(*(10.0 / (1 + step) for step in range(60)))),
    "a loss that spikes once": finished(losses=curve(*[1.0] * 30, 400.0, *[1.0] * 30)),
    "a loss below zero": finished(losses=curve(*[0.01] * 10, *(-1.0 for _ in range(20)), *[5.0] * 10)),
    "a loss that was NaN for one step": finished(losses=Losses(
        points=[(step, 1.0) for step in range(40)], not_finite=1, not_finite_from=NO_REASON)),
    "a noisy loss": finished(losses=curve(*(1.0 + (step * 7919 % 13) / 13 for step in range(60)))),
    "full load at the power limit": finished(gpus=[throttled("SW_POWER_CAP", 60)]),
    "more than the card has, and no Windows that would lend it": finished(looks(0.02, 0.98, memory=SPILLED)),
    "a card that is well filled": finished(looks(0.02, 0.98, memory=WELL_FILLED), machine=WINDOWS),
    "a hot moment": finished(gpus=[throttled("HW_THERMAL_SLOWDOWN", 2)]),
    "another card is hot": finished(gpus=[throttled("HW_THERMAL_SLOWDOWN", 50, used=False)]),
    "a little queueing": finished(looks(0.02, 0.98, cores=CoreUse(span_s=10.0, running_s=8.0, queueing_s=0.3))),
    "pages that went out and stayed there": finished(host=HostStrain(swapped_in_bytes=8 * MIB, swapped_out_bytes=9 * GIB)),
    "a busy disk that nobody waits for": finished(host=HostStrain(io_stalled_s=9.0)),
    "an older journal": finished(DeviceLook(), {"forward": 5.0, "backward": 5.0}),
    "on the processor": finished(DeviceLook(), {"input": 1.0, "forward": 5.0, "backward": 4.0}),
    "a handful of steps": finished(looks(0.97, 0.9, reads=[READ]), steps=8),
    "nothing at all": finished(DeviceLook(), {"forward": 0.0}, steps=0),
}  # fmt: skip
