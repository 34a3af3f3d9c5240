"""`PerformanceMonitor`: what a training loop does, told by the loop itself, and what its card does meanwhile.

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

from _flatout_agent.observe.losses import Losses as LossSampler
from _flatout_agent.observe.memory_state import Thinned
from flatout.api import advice, refusals
from flatout.api.card_account import CardAccounts, card_of
from flatout.api.performance import PerformanceReport
from flatout.base.records import Missing
from flatout.base.words import Words, choose_language
from flatout.launch.watcher import Watcher
from flatout.machine import nvml
from flatout.machine.model import Gpu
from flatout.machine.run_look import DeviceLook, DeviceMemory, GpuChange, Losses, Regime
from flatout.machine.timed import Question
from flatout.measure.gpu_state import compare
from flatout.measure.growth import grown

EVERY_S = 1.0
FASTEST_S = 0.005  # for the thread: it must not eat the loop's own time
AFTER_LIMIT_S = 5.0

NO_GPU = Missing("no-device")


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
        self._device = _place(device)
        self._clear_above = None if clear_cache_above is None else refusals.share("clear_cache_above", clear_cache_above)
        self._every_s = every_s
        self._words = Words(choose_language(language))
        self._clock: Callable[[], float] = time.perf_counter
        self._reset()

    def _reset(self) -> None:
        self._accounts = CardAccounts()
        self._watcher: Watcher | None = None
        self._began = self._ended = self._first = self._last = self._window_began = self._next = 0.0
        self._running = False
        self._paused_at: float | None = None
        self._steps = self._samples = self._first_samples = self._window_samples = 0
        self._recent: float | Missing = Missing("too-few-steps")
        self._rates, self._memory, self._plain_losses = Thinned(), Thinned(), Thinned()
        self._loss_sampler: LossSampler | None = None
        self._after: list[Gpu] | Missing = Missing("not-asked")
        self._cache_clears = 0

    # -- the loop's side -------------------------------------------------------------------------------------------

    def start(self) -> PerformanceMonitor:
        """Begins anew; what an earlier start has counted is forgotten."""
        if self._running:
            return self
        self._reset()
        self._watcher = Watcher(told=self._accounts.add, every_s=max(self._every_s, FASTEST_S))
        self._watcher.__enter__()
        self._began = self._clock()
        self._running = True
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
            if self._watcher is not None:
                self._watcher.__exit__(None, None, None)
                if self._watcher.before:
                    self._after = Question("nvml-after", AFTER_LIMIT_S, lambda: nvml.driver().gpus).answer()
        return self.report()

    def __enter__(self) -> PerformanceMonitor:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # -- about once a second ---------------------------------------------------------------------------------------

    def _look(self, now: float, samples: int, loss: Any) -> None:
        """In the loop's own thread: between two steps torch's books are at rest."""
        if self._watcher is None:  # nobody called `start`: the first step does, and is warm-up anyway
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
        cuda = self._cuda()
        if cuda is not None:
            self._memory.add(self._steps, cuda.memory_allocated(self._index()))
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
        index = self._index()
        if cuda.memory_reserved(index) > self._clear_above * cuda.get_device_properties(index).total_memory:
            cuda.empty_cache()
            self._cache_clears += 1

    # -- the account -----------------------------------------------------------------------------------------------

    def report(self) -> PerformanceReport:
        end = self._clock() if self._running else self._ended
        card = self._card()
        memory = self._torch_memory()
        losses = self._losses()
        span, counted = self._last - self._first, self._samples - self._first_samples
        index = card.index if card is not None else -1
        missing = self._no_card()
        during = next((one for one in self._watched() if one.index == index), None)
        growth = grown([(int(step), int(value)) for step, value in self._memory.points])

        def spread(name: str) -> Any:
            return missing if card is None else self._accounts.spread(index, name)

        return PerformanceReport(
            device=missing if card is None else card.name,
            device_index=missing if card is None else index,
            seconds=end - self._began,
            steps=self._steps,
            samples=self._samples,
            samples_per_s=counted / span if span > 0 and self._steps > 1 else Missing("too-few-steps"),
            recent_samples_per_s=self._recent,
            utilisation=spread("utilisation"),
            power_w=spread("power_draw_w"),
            temperature_c=spread("temperature_c"),
            memory_total_bytes=missing if card is None else card.memory_total_bytes,
            memory_used_bytes=spread("used"),
            allocated_bytes=missing if memory is None else memory.allocated_bytes,
            allocated_peak_bytes=missing if memory is None else memory.peak_bytes,
            reserved_bytes=missing if memory is None else memory.reserved_bytes,
            growth=growth or (Missing("too-few-looks") if memory is not None else missing),
            held_back=dict(during.held_back) if during else {},
            change=self._change(index) if card is not None else missing,
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
            memory=self._torch_memory(),
            gpus=[report.change] if isinstance(report.change, GpuChange) else self._changes(),
            device=self._regime(),
        )
        return advice.sentences(report, seen, self._words)

    def _losses(self) -> Losses:
        # Losses on the device arrive later: only those that are there are told.
        told = self._loss_sampler.told()["losses"] if self._loss_sampler is not None else []
        pairs = [(int(step), float(value)) for step, value in [*self._plain_losses.points, *told]]
        return advice.losses_of(sorted(pairs))

    def _torch_memory(self) -> DeviceMemory | None:
        cuda = self._cuda()
        if cuda is None:
            return None
        index = self._index()
        books = cuda.memory_stats(index)
        return DeviceMemory(
            allocated_bytes=cuda.memory_allocated(index),
            reserved_bytes=cuda.memory_reserved(index),
            peak_bytes=cuda.max_memory_allocated(index),
            peak_reserved_bytes=cuda.max_memory_reserved(index),
            total_bytes=cuda.get_device_properties(index).total_memory,
            retries=books.get("num_alloc_retries", 0),
            ooms=books.get("num_ooms", 0),
        )

    def _regime(self) -> DeviceLook:
        on_cuda = self._cuda() is not None
        return DeviceLook(regime=Regime(device=f"cuda:{self._index()}") if on_cuda else None)

    # -- the card --------------------------------------------------------------------------------------------------

    def _cuda(self) -> Any:
        """torch's CUDA side where it has started; None where the training is on the processor."""
        torch = sys.modules.get("torch")
        if self._device == "cpu" or torch is None or not torch.cuda.is_initialized():
            return None
        return torch.cuda

    def _index(self) -> int:
        if isinstance(self._device, int):
            return self._device
        cuda = self._cuda()
        return int(cuda.current_device()) if cuda is not None else 0

    def _card(self) -> Gpu | None:
        if self._device == "cpu":
            return None
        before = self._watcher.before if self._watcher is not None else []
        return card_of(before, self._index(), sys.modules.get("torch"))

    def _no_card(self) -> Missing:
        if self._device == "cpu":
            return Missing("on-cpu")
        watcher = self._watcher
        return (watcher.missing if watcher is not None else None) or NO_GPU

    def _watched(self) -> list[Any]:
        return self._watcher.during if self._watcher is not None else []

    def _changes(self) -> list[GpuChange]:
        """Until stopped, what is there now stands for what is there after."""
        before = self._watcher.before if self._watcher is not None else []
        after = self._after if isinstance(self._after, list) else self._accounts.last
        return compare(before, after, self._watched(), self._regime())

    def _change(self, index: int) -> GpuChange | Missing:
        if isinstance(self._after, Missing):
            return self._after
        return next((one for one in self._changes() if one.index == index), Missing("not-reported"))


def _place(device: Any) -> int | str | None:
    """None (torch's current device), an index, or "cpu"."""
    if device is None:
        return None
    if isinstance(device, int) and not isinstance(device, bool):
        return refusals.whole_number("device", device)
    kind, index = getattr(device, "type", None), getattr(device, "index", None)  # a torch.device
    if isinstance(device, str):
        kind, _, number = device.partition(":")
        index = int(number) if number.isdecimal() else None
        if number and index is None:
            kind = ""
    if kind == "cpu":
        return "cpu"
    if kind in ("cuda", "gpu"):
        return None if index is None or callable(index) else int(index)
    if kind is None:
        raise refusals.ArgumentTypeError(
            "error.argument-type", argument="device", wanted="str | int | torch.device", found=type(device).__name__
        )
    raise refusals.ArgumentValueError("error.argument-device", argument="device", value=str(device))
