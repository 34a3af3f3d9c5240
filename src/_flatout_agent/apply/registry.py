"""Every knob that can be put on, by the name it has in the front's catalogue."""

from __future__ import annotations

from _flatout_agent.apply.allocator import Allocator
from _flatout_agent.apply.channels_last import ChannelsLast
from _flatout_agent.apply.checkpointing import Checkpointing
from _flatout_agent.apply.compile import Compile
from _flatout_agent.apply.cpu_threads import CpuThreads
from _flatout_agent.apply.cudnn_benchmark import CudnnBenchmark
from _flatout_agent.apply.deferred_item import DeferredItem
from _flatout_agent.apply.device_prefetch import DevicePrefetch
from _flatout_agent.apply.fused_optimizer import FusedOptimizer
from _flatout_agent.apply.gc_policy import GcPolicy
from _flatout_agent.apply.model import Knob
from _flatout_agent.apply.non_blocking import NonBlocking
from _flatout_agent.apply.persistent_workers import PersistentWorkers
from _flatout_agent.apply.pin_memory import PinMemory
from _flatout_agent.apply.precision import Precision
from _flatout_agent.apply.prefetch_factor import PrefetchFactor
from _flatout_agent.apply.tf32 import Tf32
from _flatout_agent.apply.workers import Workers

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
