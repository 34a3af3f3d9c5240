"""A short training for the comparison of loss curves: plain or with knobs, every loss kept, another seed if asked."""

from __future__ import annotations

import os
import random
from typing import Any

from _flatout_agent.core.parent_process import Parent
from _flatout_agent.modes.driver import Driver, TrialCourse, told
from _flatout_agent.modes.first_step_gradients import FirstStep, other_draws
from _flatout_agent.modes.profile_mode import loop_ns
from _flatout_agent.modes.trial_mode import write_whole
from _flatout_agent.wire import LOSSES

RECORDED_BY = 6  # steps: what records its kernels does so in its first calls, and replays from then on
HELD = 64  # losses that may wait on the device before they are read


class ParityCourse(TrialCourse):
    """Puts its knobs on as a profile would, and ends the process when enough steps are done."""

    def __init__(self, torch: Any, folder: str, wanted: dict[str, Any], parent: Parent | None = None) -> None:
        self._torch = torch
        self._folder = folder
        self._knobs = dict(wanted.get("knobs") or {})
        self._draws = int(wanted.get("draws") or 0)
        self._look: FirstStep | None = None
        self._looks: list[dict[str, Any] | None] = []  # of the first step under the knobs, and of a later one
        self._steps_done = 0
        self._steps = int(wanted["steps"])
        self._limit_s = float(wanted.get("seconds") or 0.0)  # for curves over time: it ends after so many, too
        self._times: list[float] = []  # of each loss, in seconds of the loop without the compiler's
        self._begun = 0  # losses before the knobs were on: as slow as the plain script, and the slower the larger the batch
        self._driver: Driver | None = None
        self._parent = parent or Parent()
        self._waiting: list[Any] = []
        self._losses: list[float] = []
        self._outcomes: dict[str, Any] = {}
        offset_seeds(torch, int(wanted.get("seed", 0)))

    def prepare(self, driver: Driver) -> None:
        driver.tape.every_loss = self._keep
        self._driver = driver

    def begin(self, driver: Driver) -> None:
        self._outcomes = told(driver.set(self._knobs)) if self._knobs else {}
        self._begun = self._count()
        if not self._limit_s:
            other_draws(self._torch, driver.scene.roots, self._draws)
            self._look = FirstStep(self._torch, self._count, driver.scene.optimizers)

    def stepped(self, driver: Driver, now: int) -> bool:
        self._parent.end_if_gone()
        self._steps_done += 1
        if self._look is not None and self._look.ended():
            self._looks.append(self._look.told())
            self._look = None
        if self._steps_done == RECORDED_BY and not self._limit_s and self._look is None:
            self._look = FirstStep(self._torch, self._count, driver.scene.optimizers)
        if self._count() >= self._steps or self._over():
            self.finish(driver)
            os._exit(0)
        return True

    def finish(self, driver: Driver) -> None:
        self._read()
        proofs = told(driver.board.proofs())
        result = {
            "losses": self._losses,
            "times": self._times,
            "begun": self._begun,
            "outcomes": self._outcomes,
            "proofs": proofs,
            "looks": self._looks,
        }
        write_whole(os.path.join(self._folder, LOSSES), result)

    def _count(self) -> int:
        return len(self._losses) + len(self._waiting)

    def _keep(self, loss: Any) -> None:
        if isinstance(loss, self._torch.Tensor) and loss.numel() == 1:
            self._waiting.append(loss.detach())
            if self._limit_s and self._driver is not None:
                self._driver.tape.tell()
                self._times.append(loop_ns(self._driver) / 1e9)
            if len(self._waiting) >= HELD:
                self._read()

    def _over(self) -> bool:
        """By the time since the first step under the knobs, which pays for what happens once."""
        zero = self._begun + 1
        return bool(self._limit_s and len(self._times) > zero and self._times[-1] - self._times[zero] >= self._limit_s)

    def _read(self) -> None:
        self._losses += [float(loss) for loss in self._waiting]
        self._waiting = []


def offset_seeds(torch: Any, offset: int) -> None:
    """The script seeds as it likes; each comparison seeds by so much more. What it does not seed stays random."""
    if not offset:
        return
    original, plain = torch.manual_seed, random.seed

    def manual_seed(seed: Any) -> Any:
        return original(int(seed) + offset)

    def seed(a: Any = None, version: int = 2) -> None:
        plain(a + offset if isinstance(a, int) else a, version)

    torch.manual_seed = torch.random.manual_seed = manual_seed
    random.seed = seed
