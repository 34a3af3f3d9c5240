"""Exceptions of set-up and training loop: one type for each kind of mistake; the message names the argument.

Arguments, unknown names, models without parameters and losses that are not finite are in `refusals.py`, for all of the library.
`except flatout.base.errors.FlatoutError` catches those and these.

LibraryError                  a FlatoutError
├── RequirementError          ImportError    this torch or this Python is too old, or there is none
├── ConfigurationError        ValueError     `config`: a wrong type or value, an unreadable file, a contradiction
├── LoaderError               ValueError     `loader`: no loader, a closed one, one that cannot be divided among ranks
├── ModelError                ValueError     `model` or `optimizer`: of the wrong type, on two devices, not belonging together
├── LossError                 ValueError     `loss`: no scalar, or without a graph
├── SplitError                RuntimeError   a batch that does not fit and cannot be divided without changing its meaning
├── CheckpointError           RuntimeError   `path`: cut short, of another version, for another model; or not writable
└── OrderError                RuntimeError   a call that came before what it needs
"""

from __future__ import annotations

from flatout.base.errors import FlatoutError


class LibraryError(FlatoutError):
    pass


class RequirementError(LibraryError, ImportError):
    pass


class ConfigurationError(LibraryError, ValueError):
    pass


class LoaderError(LibraryError, ValueError):
    pass


class ModelError(LibraryError, ValueError):
    pass


class LossError(LibraryError, ValueError):
    pass


class SplitError(LibraryError, RuntimeError):
    pass


class CheckpointError(LibraryError, RuntimeError):
    pass


class OrderError(LibraryError, RuntimeError):
    pass
