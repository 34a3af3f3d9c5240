"""On which device every operation of a training really ran, asked of torch's own dispatcher."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


def tensors(thing):
    return [leaf for leaf in tree_flatten(thing)[0] if isinstance(leaf, torch.Tensor)]


class DevicesSeen(TorchDispatchMode):
    """Devices of all that goes into and comes out of an operation; backward and optimizer included.

    Tensors without dimensions are numbers: an optimizer's count of its steps lies on the host, and torch lets it.
    """

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        devices = {tensor.device for tensor in tensors((args, kwargs or {}, found)) if tensor.dim()}
        self.operations.append((str(func), devices))
        return found

    def elsewhere(self, device):
        return [(name, devices) for name, devices in self.operations if not devices <= {device}]
