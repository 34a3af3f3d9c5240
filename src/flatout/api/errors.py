"""What the library raises: one type for each kind of mistake, each a sentence that names the argument.

LibraryError                  (a FlatoutError: `except flatout.api.errors.LibraryError` catches them all)
├── RequirementError          ImportError    this torch or this Python is too old, or there is none
├── ConfigurationError        ValueError     `config`: a wrong type or value, an unknown key, two that contradict each other
├── LoaderError               ValueError     `loader`: no loader, a closed one, one that cannot be divided among ranks
├── ModelError                ValueError     `model` or `optimizer`: without parameters, on two devices, not belonging together
├── LossError                 ValueError     `loss`: no scalar, without a graph, not finite
├── SplitError                RuntimeError   a batch that does not fit and cannot be divided without changing its meaning
├── CheckpointError           RuntimeError   `path`: cut short, of another version, for another model; or not writable
└── OrderError                RuntimeError   a call that came before what it needs
"""

from __future__ import annotations

from flatout.base.errors import FlatoutError
from flatout.base.words import Words, choose_language


class LibraryError(FlatoutError):
    def __str__(self) -> str:
        return Words(choose_language(None))(self.key, **self.params)


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
