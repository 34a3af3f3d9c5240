"""Every knob that can be put on, by the name it has in the front's catalogue."""

from __future__ import annotations

from _flatout_agent.knobs.allocator import Allocator
from _flatout_agent.knobs.channels_last import ChannelsLast
from _flatout_agent.knobs.checkpointing import Checkpointing
from _flatout_agent.knobs.compile import Compile
from _flatout_agent.knobs.cpu_threads import CpuThreads
from _flatout_agent.knobs.cudnn_benchmark import CudnnBenchmark
from _flatout_agent.knobs.deferred_item import DeferredItem
from _flatout_agent.knobs.fused_optimizer import FusedOptimizer
from _flatout_agent.knobs.gc_policy import GcPolicy
from _flatout_agent.knobs.knob import Knob
from _flatout_agent.knobs.loader.device_prefetch import DevicePrefetch
from _flatout_agent.knobs.loader.non_blocking import NonBlocking
from _flatout_agent.knobs.loader.persistent_workers import PersistentWorkers
from _flatout_agent.knobs.loader.pin_memory import PinMemory
from _flatout_agent.knobs.loader.prefetch_factor import PrefetchFactor
from _flatout_agent.knobs.loader.workers import Workers
from _flatout_agent.knobs.precision import Precision
from _flatout_agent.knobs.tf32 import Tf32

KNOBS: dict[str, type[Knob]] = {
    kind.name: kind
    for kind in (
        Precision,
        Tf32,
        CudnnBenchmark,
        Allocator,
        ChannelsLast,
        FusedOptimizer,
        Compile,
        Workers,
        PersistentWorkers,
        PrefetchFactor,
        PinMemory,
        NonBlocking,
        DevicePrefetch,
        DeferredItem,
        CpuThreads,
        GcPolicy,
        Checkpointing,
    )
}
