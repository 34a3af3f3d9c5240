"""`PerformanceMonitor`: steps and samples as the loop reports them, and samples of the GPU meanwhile.

    with PerformanceMonitor() as monitor:
        for batch in loader:
            ...
            monitor.step(len(batch), loss)
    print(monitor.report())

A step costs a few additions: nothing waits for the device, and nothing is kept but some points of each series. About once a
second torch's own books of memory and the loss are looked at; the card is looked at by a thread, through the one door to NVML.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from _flatout_agent.timeline.hooks.device_memory import Thinned
from _flatout_agent.timeline.hooks.loss_values import Losses as LossSampler
from flatout.api import advice, refusals
from flatout.api.performance import PerformanceReport
from flatout.api.watched_card import WatchedCard, place_of
from flatout.base.records import Missing
from flatout.base.words import Words, choose_language
from flatout.machine.run_look import GpuChange, Losses
from flatout.measure.growth import grown

EVERY_S = 1.0


class PerformanceMonitor:
    """`device` is what torch calls it (`"cuda:1"`, a `torch.device`, an index, `"cpu"`); None is torch's current one.

    `clear_cache_above` is a share of the card: where torch holds more than that, its unused cache is given back, at most once a
    second. That waits for the device, costs speed, and cures no leak: it is off unless asked for.
    `language` is "en" or "zh" (default: the locale's).
    """

    def __init__(
        self,
        device: Any = None,
        *,
        every_s: float = EVERY_S,
        clear_cache_above: float | None = None,
        language: str | None = None,
    ) -> None:
        self._place = place_of(device)
        self._clear_above = None if clear_cache_above is None else refusals.share("clear_cache_above", clear_cache_above)
        self._every_s = every_s
        self._words = Words(choose_language(language))
        self._clock: Callable[[], float] = time.perf_counter
        self._reset()

    def _reset(self) -> None:
        self._card = WatchedCard(self._place, self._every_s)
        self._was_started = False
        self._began = self._ended = self._first = self._last = self._window_began = self._next = 0.0
        self._running = False
        self._paused_at: float | None = None
        self._steps = self._samples = self._first_samples = self._window_samples = 0
        self._recent: float | Missing = Missing("too-few-steps")
        self._rates, self._memory, self._plain_losses = Thinned(), Thinned(), Thinned()
        self._loss_sampler: LossSampler | None = None
        self._cache_clears = 0

    # -- the loop's side -------------------------------------------------------------------------------------------

    def start(self) -> PerformanceMonitor:
        """Begins anew; what an earlier start has counted is forgotten."""
        if self._running:
            return self
        self._reset()
        self._card.start()
        self._began = self._clock()
        self._running = self._was_started = True
        return self

    def step(self, samples: int, loss: Any = None) -> None:
        """After each step: how many samples it trained on, and its loss if it is to be watched (a tensor is not waited for)."""
        if type(samples) is not int:
            refusals.whole_number("samples", samples)
        now = self._clock()
        self._steps += 1
        self._samples += samples
        self._last = now
        if now >= self._next:
            self._look(now, samples, loss)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Around a validation or a checkpoint: the time inside does not count against the speed of the training."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def pause(self) -> None:
        """Until `resume`; a second call changes nothing."""
        if self._paused_at is None:
            self._paused_at = self._clock()

    def resume(self) -> None:
        if self._paused_at is None:
            return
        gap, self._paused_at = self._clock() - self._paused_at, None
        if self._first:
            # All marks move on together: without a step after the pause nothing has changed.
            self._first, self._last, self._window_began = self._first + gap, self._last + gap, self._window_began + gap

    def stop(self) -> PerformanceReport:
        """Ends the looking, compares the card with what it was before, and gives the report."""
        if self._running:
            self._running = False
            self._ended = self._clock()
            self._card.stop()
        return self.report()

    def __enter__(self) -> PerformanceMonitor:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # -- about once a second ---------------------------------------------------------------------------------------

    def _look(self, now: float, samples: int, loss: Any) -> None:
        """In the loop's own thread: between two steps torch's books are at rest."""
        if not self._was_started:  # nobody called `start`: the first step does, and is warm-up anyway
            self.start()
            self._steps, self._samples, self._last = 1, samples, now
        if self._first == 0.0:
            # The first step ends the warm-up: what it trained on is not counted against the time after it.
            self._first = self._window_began = now
            self._first_samples = self._samples
        elif now > self._window_began:
            self._recent = (self._samples - self._window_samples) / (now - self._window_began)
            self._rates.add(self._steps, self._recent)
        self._window_began, self._window_samples = now, self._samples
        self._next = now + self._every_s
        refusals.whole_number("samples", samples)
        if loss is not None:
            self._sample_loss(loss)
        cuda = self._card.cuda()
        if cuda is not None:
            self._memory.add(self._steps, cuda.memory_allocated(self._card.index()))
            self._keep_cache_small(cuda)

    def _sample_loss(self, loss: Any) -> None:
        if isinstance(loss, int | float):
            self._plain_losses.add(self._steps, float(loss))
            return
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(loss, torch.Tensor):
            raise refusals.ArgumentTypeError(
                "error.argument-type", argument="loss", wanted="Tensor | float", found=type(loss).__name__
            )
        if self._loss_sampler is None:
            self._loss_sampler = LossSampler(torch)
        self._loss_sampler.sample(self._steps, loss)

    def _keep_cache_small(self, cuda: Any) -> None:
        if self._clear_above is None:
            return
        index = self._card.index()
        if cuda.memory_reserved(index) > self._clear_above * cuda.get_device_properties(index).total_memory:
            cuda.empty_cache()
            self._cache_clears += 1

    # -- the account -----------------------------------------------------------------------------------------------

    def report(self) -> PerformanceReport:
        card, losses, memory = self._card, self._losses(), self._card.memory()
        gpu, during, missing = card.gpu(), card.during(), card.missing
        span, counted = self._last - self._first, self._samples - self._first_samples
        growth = grown([(int(step), int(value)) for step, value in self._memory.points])
        return PerformanceReport(
            device=missing if gpu is None else gpu.name,
            device_index=missing if gpu is None else gpu.index,
            seconds=(self._clock() if self._running else self._ended) - self._began,
            steps=self._steps,
            samples=self._samples,
            samples_per_s=counted / span if span > 0 and self._steps > 1 else Missing("too-few-steps"),
            recent_samples_per_s=self._recent,
            utilisation=card.spread("utilisation"),
            power_w=card.spread("power_draw_w"),
            temperature_c=card.spread("temperature_c"),
            memory_total_bytes=missing if gpu is None else gpu.memory_total_bytes,
            memory_used_bytes=card.spread("used"),
            allocated_bytes=missing if memory is None else memory.allocated_bytes,
            allocated_peak_bytes=missing if memory is None else memory.peak_bytes,
            reserved_bytes=missing if memory is None else memory.reserved_bytes,
            growth=growth or (missing if memory is None else Missing("too-few-looks")),
            held_back=dict(during.held_back) if during else {},
            change=card.change(),
            losses=losses.points,
            loss_not_finite_from=losses.not_finite_from,
            cache_clears=self._cache_clears,
        )

    def advice(self) -> list[str]:
        """What the measured figures suggest, now: the doctor's own rules, each with the first steps of its repair."""
        report = self.report()
        seen = advice.Seen(
            steps=self._steps,
            seconds=report.seconds,
            rates=[(float(step), rate) for step, rate in self._rates.points],
            losses=self._losses(),
            memory=self._card.memory(),
            gpus=[report.change] if isinstance(report.change, GpuChange) else self._card.changes(),
            device=self._card.look(),
        )
        return advice.sentences(report, seen, self._words)

    def _losses(self) -> Losses:
        # Losses on the device arrive later: only those that are there are told.
        told = self._loss_sampler.told()["losses"] if self._loss_sampler is not None else []
        pairs = [(int(step), float(value)) for step, value in [*self._plain_losses.points, *told]]
        return advice.losses_of(sorted(pairs))
