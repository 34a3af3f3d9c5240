"""Where Python keeps what an object and a class hold, and whether an object holds more than that."""

from __future__ import annotations

import ctypes

OBJECT_SIZE = object.__basicsize__
POINTER = ctypes.sizeof(ctypes.c_void_p)
# Of a class: what Python or its makers keep there, which no method reads.
NOT_READ = frozenset(
    {
        "__module__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__annotations__",
        "__slots__",
        "__parameters__",
        "__orig_bases__",
        "__abstractmethods__",
        "_abc_impl",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__match_args__",
        "__qualname__",
        "__static_attributes__",
        "__firstlineno__",
        "__annotate_func__",
        "__annotations_cache__",
        "__annotate__",
        "__type_params__",
    }
)
MAKING = frozenset(
    {"__init__", "__new__", "__post_init__", "__del__", "__init_subclass__", "__class_getitem__", "__set_name__"}
)
METACLASSES = frozenset({"type", "ABCMeta", "EnumMeta", "EnumType"})
BARE_BASES = frozenset({"object", "Dataset", "Generic", "ABC", "Protocol"})


def slots_of(kind: type) -> tuple[str, ...]:
    own = vars(kind).get("__slots__", ())
    names = (own,) if isinstance(own, str) else tuple(own)
    mangled = f"_{kind.__name__.lstrip('_')}"
    plain = (name for name in names if name not in ("__dict__", "__weakref__"))
    return tuple(f"{mangled}{name}" if name.startswith("__") and not name.endswith("__") else name for name in plain)


def hides_more(kind: type, slots: int) -> bool:
    """Whether its objects hold more than attributes and slots: then a part of them is C code's."""
    seen = OBJECT_SIZE + POINTER * (slots + bool(kind.__dictoffset__ > 0) + bool(kind.__weakrefoffset__ > 0))
    return bool(kind.__basicsize__ > seen or kind.__itemsize__)
