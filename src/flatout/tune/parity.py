"""The parity gate: curves of fresh children, and a profile that fails is repaired by taking its likeliest culprit out."""

from __future__ import annotations

from collections.abc import Callable

from flatout.measure.parity import FEWEST_PAIRS, Parity, Verdict, judge
from flatout.tune.model import Values

STEPS = 60
SEEDS = FEWEST_PAIRS
MOST_REPAIRS = 2

# Rounding is changed by these, the likeliest culprit first; the others leave it alone.
SUSPECTS = ("precision", "compile", "tf32", "channels_last", "fused_optimizer", "cudnn_benchmark", "checkpointing")

Curve = Callable[[Values, int, int], "list[float] | None"]  # knobs, steps, seed
Told = Callable[[str], None]


class Gate:
    """`curve` trains in a fresh child; `told` hears what is being done."""

    def __init__(self, curve: Curve, told: Told) -> None:
        self._curve = curve
        self._told = told
        self._plain: list[list[float] | None] | None = None

    def check(self, knobs: Values) -> Parity:
        if self._plain is None:
            self._plain = []
            for seed in range(SEEDS):
                self._told(f"plain {seed + 1}/{SEEDS}")
                self._plain.append(self._curve({}, STEPS, 1000 * seed))
        pairs = []
        for seed, plain in enumerate(self._plain):
            self._told(f"tuned {seed + 1}/{SEEDS}")
            changed = self._curve(knobs, STEPS, 1000 * seed)
            if plain is not None and changed is not None:
                pairs.append((plain, changed))
        return judge(pairs)

    def repaired(self, profile: Values) -> tuple[Values, Parity, list[str]]:
        """The profile, or what is left of it once it passes; the verdict; what was taken out."""
        taken: list[str] = []
        knobs = dict(profile)
        if not any(name in knobs for name in SUSPECTS):
            return knobs, Parity(verdict=Verdict.PASS, code="same-numbers", pairs=0), taken
        verdict = self.check(knobs)
        while verdict.verdict is Verdict.FAIL and len(taken) < MOST_REPAIRS:
            suspect = next((name for name in SUSPECTS if name in knobs), None)
            if suspect is None:
                break
            taken.append(suspect)
            knobs.pop(suspect)
            if not any(name in knobs for name in SUSPECTS):
                return knobs, Parity(verdict=Verdict.PASS, code="same-numbers", pairs=0), taken
            verdict = self.check(knobs)
        return knobs, verdict, taken
