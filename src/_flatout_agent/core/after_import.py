"""Runs a function right after a module has been imported, leaving no trace on the module."""

from __future__ import annotations

import importlib.util
import sys
from threading import get_ident
from time import perf_counter_ns
from types import ModuleType
from typing import Any, Callable, Sequence

from _flatout_agent.core.fault_guard import fault

AfterImport = Callable[[ModuleType, int], None]


class _Watch:  # no MetaPathFinder: to import that one imports half of the library before the script can
    """Stands first among the finders until the module has been imported, then steps aside.

    Not sooner: many libraries ask whether there is a torch (`importlib.util.find_spec`) long before they import it.
    """

    def __init__(self, name: str, after: AfterImport) -> None:
        self._name = name
        self._after = after
        self._looking = 0  # the thread in which we ask the other finders ourselves

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name != self._name or self._looking == get_ident():
            return None
        self._looking = get_ident()
        try:
            spec = importlib.util.find_spec(name)
            loader = getattr(spec, "loader", None)
            if loader is not None and hasattr(loader, "exec_module"):
                self._run_after(loader)
            return spec
        except Exception as error:
            fault("imports.find_spec", error)
            return None  # the other finders are asked, as without us
        finally:
            self._looking = 0

    def _run_after(self, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # the loader is as it was before the module's code runs
            began = perf_counter_ns()
            original(module)
            self._name = ""
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _call(self._after, module, perf_counter_ns() - began)

        loader.exec_module = exec_module


def _call(after: AfterImport, module: ModuleType, nanoseconds: int) -> None:
    try:
        after(module, nanoseconds)
    except Exception as error:
        fault("imports.after", error)


def after_import(name: str, after: AfterImport) -> None:
    """Call `after(module, nanoseconds of its import)` once `name` is imported; at once where it already is."""
    module = sys.modules.get(name)
    if module is not None:
        _call(after, module, 0)
    else:
        sys.meta_path.insert(0, _Watch(name, after))
