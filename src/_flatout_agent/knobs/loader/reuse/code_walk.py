"""What code reads by name, as it is followed from one piece of code to the next."""

from __future__ import annotations

import hashlib
import sys
from typing import Any, Callable

from _flatout_agent.knobs.loader.reuse.names_in_code import BY_ANY_NAME, BY_MADE_NAME
from _flatout_agent.knobs.loader.reuse.trusted_packages import is_builtin_name, is_trusted
from _flatout_agent.knobs.loader.reuse.value_checksum import UnknownError


class Namespace:
    """A class's or a module's names, of which those are read that code names."""

    def __init__(self, path: str, names: Any, by_name: Callable[[str, Any], bool]) -> None:
        self.path = path
        self.names = names
        self.by_name = by_name  # whether what has this name is read only by code that names it
        self.taken: set[str] = set()


class CodeWalk:
    """Follows names that code has into the globals, classes and modules in which they stand."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=20)
        self._todo: list[tuple[str, Any]] = []
        self._namespaces: dict[int, Namespace] = {}
        self._attributes: dict[str, None] = {}  # that some code names
        self._packages: set[str] = set()
        self._by_made_name = False
        self._modules_read = False

    def _visit(self, path: str, thing: Any) -> None:
        raise NotImplementedError

    def _say(self, *parts: Any) -> None:
        self._hash.update(repr(parts).encode("utf-8", "surrogatepass"))

    def _add(self, path: str, thing: Any) -> None:
        self._todo.append((path, thing))

    def _add_all(self, path: str, things: Any) -> None:
        for number, thing in enumerate(things):
            self._todo.append((f"{path}[{number}]", thing))

    def _read(self, path: str, names: Any, globals_: dict[str, Any]) -> None:
        every = {*names.globals, *names.attributes, *names.modules}
        if every & BY_ANY_NAME or ("sys" in every and "modules" in every):
            raise UnknownError(f"{path} reads {', '.join(sorted(every & BY_ANY_NAME)) or 'sys.modules'}")
        if every & BY_MADE_NAME and not self._by_made_name:
            self._by_made_name = True
            self._read_more(None)
        if "__class__" in every or "type" in every:
            self._names(("__init__", "__new__", "__post_init__"))
        for name in names.globals:
            if name in globals_:
                self._say("global", name)
                self._value(name, globals_[name])
            elif not is_builtin_name(name):
                self._say("no such global", name)
        for name in names.modules:
            self._imported(path, name, globals_)
        self._names(names.attributes)

    def _imported(self, path: str, name: str, globals_: dict[str, Any]) -> None:
        if is_trusted(name):
            self._packages.add(name.partition(".")[0])
            return
        found = [one for one in (name, f"{globals_.get('__package__') or ''}.{name}") if one in sys.modules]
        if not found:
            raise UnknownError(f"{path} imports {name}")
        parts = found[0].split(".")
        for end in range(len(parts)):
            module = sys.modules.get(".".join(parts[: end + 1]))
            if module is not None:
                self._visit(name, module)

    def _value(self, path: str, thing: Any) -> None:
        """What code has in its hands by name: a class may be made an object of."""
        if isinstance(thing, type) and not is_trusted(thing.__module__):
            self._names(("__init__", "__new__", "__post_init__"))
        self._add(path, thing)

    def _names(self, names: Any) -> None:
        for name in names:
            if name not in self._attributes:
                self._attributes[name] = None
                self._read_more(name)

    def _read_more(self, name: str | None) -> None:
        for namespace in list(self._namespaces.values()):
            if name is None:
                self._take(namespace)
            elif name in namespace.names:
                self._take_one(namespace, name)

    def _enter(self, namespace: Namespace) -> None:
        self._namespaces[id(namespace.names)] = namespace
        self._take(namespace)

    def _take(self, namespace: Namespace) -> None:
        for name, thing in list(namespace.names.items()):
            if name in self._attributes or not namespace.by_name(name, thing):
                self._take_one(namespace, name)

    def _take_one(self, namespace: Namespace, name: str) -> None:
        if name not in namespace.taken:
            namespace.taken.add(name)
            self._say("named", name)
            self._value(f"{namespace.path}.{name}", namespace.names[name])
