"""Several knobs set at once, at a step boundary, in an order that is safe; a fault of ours takes the knob off again."""

from __future__ import annotations

from typing import Any

from _flatout_agent.core.fault_guard import fault
from _flatout_agent.knobs.kept_compilations import APART, TOLD_APART
from _flatout_agent.knobs.knob import Knob, Outcome, Scene, refused

# Layout before the optimizer that reads it, both before what compiles them; workers before what needs workers.
ORDER = (
    "allocator",
    "cudnn_benchmark",
    "tf32",
    "cpu_threads",
    "gc_policy",
    "channels_last",
    "fused_optimizer",
    "checkpointing",
    "precision",
    "compile",
    "workers",
    "persistent_workers",
    "prefetch_factor",
    "pin_memory",
    "non_blocking",
    "device_prefetch",
    "deferred_item",
)


class Switchboard:
    """Knows what is on, changes only what differs, and never raises into the script."""

    def __init__(self, scene: Scene, knobs: dict[str, type[Knob]]) -> None:
        self.scene = scene
        self._kinds = knobs
        self._on: dict[str, tuple[Any, Knob]] = {}

    @property
    def on(self) -> dict[str, Any]:
        return {name: value for name, (value, _) in self._on.items()}

    def set(self, wanted: dict[str, Any]) -> dict[str, Outcome]:
        """Exactly these values from now on; what is not named is as in the script. One outcome for each named."""
        goal = {name: value for name, value in wanted.items() if not Knob.is_off(value)}
        unchanged = {name for name, value in goal.items() if name in self._on and self._on[name][0] == value}
        # What is compiled was compiled for the other settings: it comes off first and goes on again last.
        if "compile" in unchanged and _touch_graphs(goal, self.on):
            unchanged.discard("compile")
        for name in sorted(self._on, key=_place, reverse=True):
            if name not in unchanged:
                self._take_off(name)
        self.scene.beside = goal
        outcomes = {}
        for name in sorted(goal, key=_place):
            outcomes[name] = self._keep_on(name) if name in unchanged else self._put_on(name, goal[name])
        return outcomes

    def put_on_again(self, names: tuple[str, ...]) -> None:
        """The scene has more than when these were put on."""
        values = {name: self._on[name][0] for name in sorted(self._on, key=_place) if name in names}
        for name in reversed(list(values)):
            self._take_off(name)
        for name, value in values.items():
            self._put_on(name, value)

    def proofs(self) -> dict[str, Outcome]:
        """What was seen of each knob that is on; one that has no effect is said so, with the reason."""
        return {name: self._prove(name) for name in list(self._on)}

    def numerics(self) -> dict[str, str]:
        return {name: knob.numerics(self.scene) for name, (_, knob) in self._on.items()}

    def clear(self) -> None:
        """Everything as in the script."""
        for name in sorted(self._on, key=_place, reverse=True):
            self._take_off(name)
        self.scene.compilations.close(self.scene.torch)

    def _put_on(self, name: str, value: Any) -> Outcome:
        kind = self._kinds.get(name)
        if kind is None:
            return refused("unknown-knob", name=name)
        knob = kind.meant_by(value)
        try:
            outcome = knob.put_on(self.scene, value)
        except Exception as error:
            outcome = refused("fault", error=f"{type(error).__name__}: {error}"[:300])
            fault(f"apply.{name}", error)
        if outcome.status == "applied":
            self._on[name] = (value, knob)
        else:
            self._quietly_take_off(name, knob)
        return outcome

    def _keep_on(self, name: str) -> Outcome:
        outcome = self._prove(name)
        self._on[name][1].stays_on()
        return outcome

    def _take_off(self, name: str) -> None:
        _, knob = self._on.pop(name)
        self._quietly_take_off(name, knob)

    def _quietly_take_off(self, name: str, knob: Knob) -> None:
        try:
            knob.take_off()
        except Exception as error:
            fault(f"apply.{name}.off", error)

    def _prove(self, name: str) -> Outcome:
        try:
            return self._on[name][1].proof()
        except Exception as error:
            fault(f"apply.{name}.proof", error)
            return refused("fault", error=f"{type(error).__name__}: {error}"[:300])


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _touch_graphs(goal: dict[str, Any], on: dict[str, Any]) -> bool:
    return any(goal.get(name) != on.get(name) for name in (*APART, *TOLD_APART))
