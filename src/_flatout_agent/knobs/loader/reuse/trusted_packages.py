"""Packages whose own state fetching does not depend on, and classes of theirs that never change."""

from __future__ import annotations

import builtins
import os
import sys
from typing import Any

# Beside the standard library. Their global generators are those that a worker seeds; what else they hold, they hold in objects.
PACKAGES = frozenset(
    {"torch", "torchvision", "torchaudio", "numpy", "PIL", "scipy", "skimage", "cv2", "_flatout_agent", "builtins"}
)
# Functions of those that draw from a generator of their own, or set it.
DRAWING = {"cv2": frozenset({"kmeans", "randn", "randu", "randShuffle", "setRNGSeed", "theRNG"})}

# Classes of C code whose objects never change, or hold nothing that fetching could read.
CONSTANT = frozenset(
    {
        ("re", "Pattern"),
        ("_thread", "lock"),
        ("_thread", "RLock"),
        ("_abc", "_abc_data"),
        ("collections", "_tuplegetter"),
        ("types", "GenericAlias"),
        ("types", "UnionType"),
        ("datetime", "date"),
        ("datetime", "datetime"),
        ("datetime", "time"),
        ("datetime", "timedelta"),
        ("datetime", "timezone"),
        ("decimal", "Decimal"),
        ("builtins", "method_descriptor"),
        ("builtins", "wrapper_descriptor"),
        ("builtins", "getset_descriptor"),
        ("builtins", "member_descriptor"),
        ("builtins", "classmethod_descriptor"),
        ("builtins", "ellipsis"),
        ("builtins", "NotImplementedType"),
        ("torch", "device"),
        ("torch", "dtype"),
        ("torch", "layout"),
        ("torch", "memory_format"),
        ("torch", "Size"),
        ("numpy", "ufunc"),
        ("numpy", "dtype"),
    }
)
# Whose content lies in memory that all processes share: what one writes, all of them read, however old they are.
SHARED = frozenset({"multiprocessing.sharedctypes", "multiprocessing.synchronize"})
LOGGING = "logging"  # a logger writes, and is not read

_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_roots: dict[str, bool] = {}


def is_trusted(module: str | None) -> bool:
    """Whether functions and classes of this module are taken as they are."""
    root = (module or "").partition(".")[0]
    known = _roots.get(root)
    if known is None:
        known = _roots[root] = root in PACKAGES or _is_standard(root)
    return known


def _is_standard(root: str) -> bool:
    """By where it lies: a script may have a file of its own under a name of the standard library's."""
    module = sys.modules.get(root)
    if root in ("", "__main__") or module is None:
        return root in sys.builtin_module_names or root in getattr(sys, "stdlib_module_names", ())
    file = getattr(module, "__file__", None)
    if file is None:
        return root in sys.builtin_module_names or root in getattr(sys, "stdlib_module_names", ())
    file = os.path.abspath(file)
    return file.startswith(_LIBRARY) and "-packages" not in file


def is_constant(kind: type) -> bool:
    if (kind.__module__, kind.__name__) in CONSTANT or kind.__module__ == "typing":
        return True
    # numpy has a class for each kind of number, under names that changed.
    return kind.__module__.startswith("numpy") and kind.__name__.endswith("DType")


def draws(package: str, attributes: Any) -> str:
    """The name of a function that draws from this package's own generator, if one is among these names."""
    return next((name for name in sorted(DRAWING.get(package, ())) if name in attributes), "")


def is_builtin_name(name: str) -> bool:
    return hasattr(builtins, name)
