"""What every knob speaks: the scene it is put on, what came of it, and the four promises each one keeps."""

from __future__ import annotations

from typing import Any
from weakref import ref

from _flatout_agent.core.patches import Patches
from _flatout_agent.knobs.kept_compilations import Compilations
from _flatout_agent.knobs.loader.batch_copies import Mover
from _flatout_agent.knobs.loader.iterator_handover import Handover
from _flatout_agent.knobs.module_wrapper import Wardrobe

APPLIED = "applied"
ALREADY = "already"
REFUSED = "refused"

EXACT = "exact"
RESAMPLED = "resampled"
TOLERANCE = "tolerance"
TRAINING = "training"

UNKNOWN = ""  # the device of a model that has not been found yet


class Outcome:
    """What came of a knob: a status, a reason that needs no language, and what was seen, as plain JSON values."""

    __slots__ = ("code", "details", "status")

    def __init__(self, status: str, code: str = "", **details: Any) -> None:
        self.status = status
        self.code = code
        self.details = details

    def told(self) -> dict[str, Any]:
        return {"status": self.status, "code": self.code, "details": self.details}

    def __bool__(self) -> bool:
        """Whether the knob is in effect, by us or by the script."""
        return self.status != REFUSED

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and self.told() == other.told()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Outcome({self.status}, {self.code!r}, {self.details})"


def applied(code: str = "", **details: Any) -> Outcome:
    return Outcome(APPLIED, code, **details)


def already(code: str, **details: Any) -> Outcome:
    return Outcome(ALREADY, code, **details)


def refused(code: str, **details: Any) -> Outcome:
    return Outcome(REFUSED, code, **details)


class Scene:
    """What the agent found in the running script. The script's objects are held weakly: it may drop them any time."""

    def __init__(self, torch: Any, device_type: str = "cpu") -> None:
        self.torch = torch
        self.device_type = device_type
        self.steps_done = 0  # a knob that must come before the first step asks this
        self.autocast_seen = False  # the script enters autocast itself
        self.compiled_seen = False  # the script uses torch.compile itself
        self.double_backward_seen = False  # it differentiates gradients: a penalty, a Hessian
        self.graph_kept_seen = False  # it goes backward through one graph more than once
        self.wardrobe = Wardrobe(torch)
        self.handover = Handover(torch)
        self.mover = Mover(torch)
        self.compilations = Compilations()
        self.beside: dict[str, Any] = {}  # what is wanted of all knobs, for those that go by others
        self.on_tensors: list[Patches] = []  # of knobs that change methods of tensors, beside the mover's
        self._roots: list[ref[Any]] = []
        self._optimizers: list[ref[Any]] = []
        self._loaders: list[ref[Any]] = []

    def found(self, roots: Any = (), optimizers: Any = (), loaders: Any = ()) -> None:
        """More of the script's objects; those known already are not taken twice."""
        for place, things in ((self._roots, roots), (self._optimizers, optimizers), (self._loaders, loaders)):
            known = {id(thing) for thing in alive(place)}
            place.extend(ref(thing) for thing in things if id(thing) not in known)

    @property
    def roots(self) -> list[Any]:
        return alive(self._roots)

    @property
    def optimizers(self) -> list[Any]:
        return alive(self._optimizers)

    @property
    def loaders(self) -> list[Any]:
        return alive(self._loaders)

    def lift(self) -> None:
        """While Dynamo compiles: it would break its graph at a method of ours."""
        for patches in self.on_tensors:
            patches.lift()
        self.mover.lift()

    def put_back(self) -> None:
        self.mover.put_back()
        for patches in self.on_tensors:
            patches.put_over()

    def shapes(self) -> list[str]:
        """Of the batches that the training loaders gave while they were watched."""
        seen = [self.handover.fetching(loader.dataset) for loader in self.loaders]
        return [shape for fetching in seen if fetching is not None for shape in fetching.shapes()]

    def may_have_cuda(self) -> bool:
        """Before the first step nobody knows where the model will be. Asking the driver would spoil a later fork."""
        if self.device_type != UNKNOWN:
            return self.has_cuda()
        return bool(getattr(self.torch.version, "cuda", None) or getattr(self.torch.version, "hip", None))

    def has_cuda(self) -> bool:
        return bool(self.device_type == "cuda" and self.torch.cuda.is_available())


def alive(references: list[ref[Any]]) -> list[Any]:
    things = (reference() for reference in references)
    return [thing for thing in things if thing is not None]


class Knob:
    """One setting. `put_on` says what came of it, `take_off` leaves no trace, `proof` tells what was seen since."""

    name = ""
    hot = True  # False: only before the first step, so a change of it restarts the script

    @classmethod
    def meant_by(cls, value: Any) -> Knob:
        """A new one for this value: some are done in quite another way."""
        del value
        return cls()

    @classmethod
    def foretold(cls, scene: Scene, value: Any) -> Outcome | None:
        """What will come of it, where the script's parts say so; None where only a trial can tell. Nothing is put on."""
        return None

    def put_on(self, scene: Scene, value: Any) -> Outcome:
        raise NotImplementedError

    def take_off(self) -> None:
        raise NotImplementedError

    def proof(self) -> Outcome:
        raise NotImplementedError

    def stays_on(self) -> None:
        """Into the next trial: what proves it there must be seen there."""

    def numerics(self, scene: Scene) -> str:
        return TOLERANCE

    @staticmethod
    def is_off(value: Any) -> bool:
        """Whether this value means the script as it is."""
        return value is None or value is False or value in ("off", "no", "script")  # 0 is a number of workers
