"""Saves a model before measurements and restores it bit for bit: weights, buffers, gradients, modes, generators."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

CONTAINERS = ("_parameters", "_buffers")


@contextlib.contextmanager
def kept(torch: Any, model: Any) -> Iterator[None]:
    """Copies lie in the host's memory, so that the device has as much room as in a real training.

    Attributes that a forward pass rebinds are put back; what it changes inside a list or dict of its own cannot be known.
    """
    modules = [(module, _attributes(module)) for module in model.modules()]
    tensors = {id(tensor): tensor for module, _ in modules for tensor in _tensors(torch, module)}
    values = [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in tensors.values()]
    grads = [(parameter, parameter.grad) for parameter in model.parameters()]
    generators = _generators(torch)
    for parameter, _ in grads:
        parameter.grad = None
    try:
        yield
    finally:
        for module, attributes in modules:
            _put_back(module, attributes)
        with torch.no_grad():
            for tensor, value in values:
                tensor.copy_(value)
        for parameter, grad in grads:
            parameter.grad = grad
        _put_back_generators(torch, generators)


def _attributes(module: Any) -> dict[str, Any]:
    plain = dict(vars(module))
    return {**plain, **{name: dict(plain[name]) for name in CONTAINERS if name in plain}}


def _put_back(module: Any, attributes: dict[str, Any]) -> None:
    containers = {name: vars(module)[name] for name in CONTAINERS if name in attributes}
    vars(module).clear()
    vars(module).update(attributes)
    for name, container in containers.items():
        # The same dict as before: others may hold it.
        container.clear()
        container.update(attributes[name])
        vars(module)[name] = container


def _tensors(torch: Any, module: Any) -> Iterator[Any]:
    yield from module.parameters(recurse=False)
    yield from (buffer for buffer in module.buffers(recurse=False) if buffer is not None)
    yield from (value for value in vars(module).values() if isinstance(value, torch.Tensor))


def _generators(torch: Any) -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    return torch.get_rng_state(), cuda, random.getstate(), None if numpy is None else numpy.random.get_state()


def _put_back_generators(torch: Any, states: tuple[Any, ...]) -> None:
    cpu, cuda, python, numpy_state = states
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)
    random.setstate(python)
    if numpy_state is not None:
        sys.modules["numpy"].random.set_state(numpy_state)
