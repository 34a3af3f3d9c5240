"""What was compiled in a trial stays for the next one: turning back to it takes no second, compiling anew takes several.

Dynamo holds its variants on the code that it compiled and tells them apart by guards: precision and TF32 are among these.
Another layout or batch size would be taken for a dimension that changes, and be compiled for all of them, slowly: there, as
everywhere outside trials, the next variant begins with an empty cache.
"""

from __future__ import annotations

from typing import Any

# Beside one another in one cache; CUDA graphs of more of them would hold too much memory.
MOST = 3
FIRST_TO_KEEP = (2, 5)  # before it a CUDA graph took the weights' addresses for fixed
APART = ("channels_last", "checkpointing")
TOLD_APART = ("precision", "tf32")

Key = tuple[Any, ...]


class Tally:
    """Dynamo's own counters, as they stand now."""

    def __init__(self) -> None:
        from torch._dynamo import convert_frame
        from torch._dynamo.utils import counters

        self._variants = dict(getattr(convert_frame, "FRAME_COMPILE_COUNTER", {}))
        self._totals = {
            "graphs": int(counters["stats"].get("unique_graphs", 0)),
            "graph_breaks": int(sum(counters["graph_break"].values())),
            "limit_hits": int(sum(value for key, value in counters["frames"].items() if "limit" in str(key))),
            "cuda_graph_skips": int(counters["inductor"].get("cudagraph_skips", 0)),
        }

    def since(self, before: Tally, known: bool) -> dict[str, int]:
        """What came since then. `known`: what is compiled was met before, so that the first variant of a frame is one more."""
        new = [value - before._variants.get(frame, 0) for frame, value in self._variants.items()]
        found = {name: max(0, value - before._totals[name]) for name, value in self._totals.items()}
        found["recompiles"] = sum(max(0, count - (not known)) for count in new)
        found["most_variants"] = max(new, default=0)
        return found


class Compilations:
    """By mode and by what Dynamo tells apart, what was counted of each that is still there."""

    def __init__(self) -> None:
        self.open = False  # only where trials change to and fro
        self.batch: Any = None  # the batch size that is tried, where it is not the script's own
        self._ground: Key = ()
        self._functions: dict[Any, Any] = {}
        self._counted: dict[Key, dict[str, int]] = {}

    def begin(self, torch: Any, mode: str, beside: dict[str, Any]) -> Key:
        """A variant is put on beside these knobs: its name."""
        ground = (*(beside.get(name) for name in APART), self.batch)
        key = (mode, *(beside.get(name) for name in TOLD_APART))
        if self._counted and (ground != self._ground or (key not in self._counted and len(self._counted) >= MOST)):
            self.forget(torch)
        self._ground = ground
        return key

    def function(self, torch: Any, forward: Any, backend: str, options: dict[str, str]) -> Any:
        known = (forward, backend, *options.values())
        if known not in self._functions:
            self._functions[known] = torch.compile(forward, backend=backend, **options)
        return self._functions[known]

    def counted(self, key: Key) -> dict[str, int]:
        return self._counted.get(key, {})

    def leave(self, torch: Any, key: Key, counted: dict[str, int], sound: bool) -> None:
        """A variant is taken off. One that raised is not looked at again."""
        if self.open and sound and _version(torch) >= FIRST_TO_KEEP:
            self._counted[key] = counted
        else:
            self.forget(torch)

    def close(self, torch: Any) -> None:
        """The trials are over."""
        self.open = False
        if self._counted:
            self.forget(torch)

    def forget(self, torch: Any) -> None:
        self._counted.clear()
        self._functions.clear()
        torch._dynamo.reset()


def _version(torch: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in str(torch.__version__).split("+")[0].split(".")[:2])
