"""A device for machines without one: single-precision tensors lie on it, all others on the host.

Enough for the agent to take the ways that it takes on a GPU. Part of the scene, with and without the agent.
"""

from itertools import count
from types import SimpleNamespace

BOOKS = {
    "allocated_bytes": {"all": {"current": 1 << 20, "peak": 2 << 20}},
    "reserved_bytes": {"all": {"current": 4 << 20, "peak": 4 << 20}},
    "num_alloc_retries": 0,
    "num_ooms": 0,
}


class Event:
    def __init__(self, enable_timing=False):
        pass

    def record(self, stream=None):
        pass

    def query(self):
        return True

    def elapsed_time(self, later):
        return 0.5


def put_on(torch):
    torch.Tensor.is_cuda = property(lambda tensor: tensor.dtype is torch.float32)
    torch.Tensor.is_cpu = property(lambda tensor: tensor.dtype is not torch.float32)
    asked = count()
    queued = []  # what torch does once CUDA has started
    stream = SimpleNamespace(synchronize=lambda: None)
    for name, value in {
        "is_initialized": lambda: True,
        "is_current_stream_capturing": lambda: next(asked) % 5 == 4,
        "current_stream": lambda device=None: stream,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "_lazy_call": queued.append,
        "init": lambda: [call() for call in queued],
        "synchronize": lambda device=None: None,
        "memory_allocated": lambda device=None: 1 << 20,
        "max_memory_allocated": lambda device=None: 2 << 20,
        "memory_reserved": lambda device=None: 4 << 20,
        "get_device_properties": lambda device: SimpleNamespace(total_memory=1 << 30, name="stand-in"),
        "get_device_capability": lambda device=None: (9, 0),
        "set_per_process_memory_fraction": lambda fraction, device=None: None,
        "Event": Event,
    }.items():
        setattr(torch.cuda, name, value)
    torch._C._cuda_memoryStats = lambda device: BOOKS
    empty = torch.empty
    torch.empty = lambda *size, pin_memory=False, **options: empty(*size, **options)
