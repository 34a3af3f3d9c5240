"""How long each timed step of a segment took, so that what does not belong to every step can be told from what does."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

MOST_TOLD = 256  # numbers in an answer: beyond, neighbours are added up
FEWEST_BEFORE = 4  # steps that say what is usual
FAR = 5  # times the usual step


class StepTimes:
    """By the host's clock; on a card by an event at each step's end, because there the host only queues its work."""

    def __init__(self, torch: Any, on_card: bool, began: int, waited: int) -> None:
        self._torch = torch
        self._on_card = on_card
        self._last, self._waited = began, waited
        self._spent: list[int] = []  # nanoseconds of each step …
        self._waits: list[int] = []  # … of which the loop waited for its batch
        self._events: list[Any] = []
        self._usual = self._counted = 0
        self._note_event()

    def ended(self, now: int, waited: int) -> bool:
        """Notes the end of a step; whether it took so long that something else must have been done in it."""
        spent, wait = now - self._last, waited - self._waited
        self._last, self._waited = now, waited
        self._spent.append(spent)
        self._waits.append(wait)
        self._note_event()
        own = max(0, spent - wait)
        if self._counted >= FEWEST_BEFORE and own * self._counted > FAR * self._usual:
            return True
        self._usual += own
        self._counted += 1
        return False

    def excess(self) -> int:
        """Nanoseconds by which the last step exceeds the usual one."""
        return max(0, self._spent[-1] - self._waits[-1] - self._usual // max(1, self._counted))

    def told(self) -> dict[str, Any]:
        """With the device at rest."""
        # Steps on a stream that is not at rest were queued there by the script itself: then the host's times are all there is.
        seen = self._on_card and all(event.query() for event in self._events)
        spent = self._by_device() if seen else [one / 1e9 for one in self._spent]
        group = -(-len(spent) // MOST_TOLD) or 1
        return {
            "step_times": _added_up(spent, group),
            "step_waits": _added_up([one / 1e9 for one in self._waits], group),
            "by_device": seen,
        }

    def _note_event(self) -> None:
        if self._on_card:
            event = self._torch.cuda.Event(enable_timing=True)
            event.record(self._torch.cuda.current_stream())
            self._events.append(event)

    def _by_device(self) -> list[float]:
        pairs = zip(self._events, self._events[1:])  # noqa: B905 (Python 3.9)
        return [first.elapsed_time(second) / 1e3 for first, second in pairs]


def _added_up(values: list[float], group: int) -> list[float]:
    return [round(sum(values[at : at + group]), 6) for at in range(0, len(values) - group + 1, group)]


class FirstSteps:
    """How long a step takes, from those before the first segment."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._ends: list[int] = []
        self._seen: list[tuple[int, int]] = []  # steps and batches after each
        self.tape: Any = None

    def ended(self) -> None:
        if self._torch.cuda.is_initialized():
            self._torch.cuda.current_stream().synchronize()
        self._ends.append(perf_counter_ns())
        if self.tape is not None:
            self.tape.tell()
            clock = self.tape.clock
            self._seen.append((clock.steps, clock.batches - clock.beside))

    def told(self) -> dict[str, float]:
        """The shortest: the first ones pay for what happens once."""
        steps = [later - earlier for earlier, later in zip(self._ends, self._ends[1:])]  # noqa: B905 (Python 3.9)
        told = {"step_s": min(steps) / 1e9} if steps else {}
        rates = self._batches_a_step()
        return {**told, "batches_a_step": rates[len(rates) // 2]} if rates else told

    def _batches_a_step(self) -> list[float]:
        """Each step's, in order of size: one that a gradient scaler left out leaves its batches to the next."""
        pairs = zip(self._seen, self._seen[1:])  # noqa: B905 (Python 3.9)
        rates = [(later[1] - one[1]) / (later[0] - one[0]) for one, later in pairs if later[0] > one[0]]
        return sorted(rate for rate in rates if rate > 0)
