"""The parity gate: fresh children train plain and tuned from the same seeds. What they make of one batch and their loss curves
are compared; a profile that fails is repaired by taking its likeliest culprit out."""

from __future__ import annotations

from collections.abc import Callable, Collection

from flatout.base.records import replace
from flatout.knobs.catalogue import RECORDED
from flatout.measure.one_batch import FIRST, LATER, OneBatch, Training, compare
from flatout.measure.parity import FEWEST_PAIRS, Parity, Verdict, judge
from flatout.tune.search.questions_and_answers import Values

STEPS = 60
SEEDS = FEWEST_PAIRS
MOST_REPAIRS = 2

# Rounding is changed by these, the likeliest culprit first; the others leave it alone.
SUSPECTS = ("precision", "compile", "tf32", "channels_last", "fused_optimizer", "cudnn_benchmark", "checkpointing")

Curve = Callable[[Values, int, int, int], "Training | None"]  # knobs, steps, seed, other random numbers on the device
Pairs = list[tuple[Training, Training]]  # plain and changed
REPLAYED = ("reduce-overhead", "max-autotune", RECORDED)  # values of compile whose first steps are not yet what is kept
Told = Callable[[str], None]


class Gate:
    """`curve` trains in a fresh child; `told` hears what is being done. `drawing` knobs are not trained with: they compute the
    same, on other random numbers of the same kind, whose noise would hide what rounding does."""

    def __init__(self, curve: Curve, told: Told, drawing: Collection[str] = ()) -> None:
        self._curve = curve
        self._told = told
        self._drawing = drawing
        self._plain: list[Training | None] | None = None
        self._chance: Pairs | None = None
        self.failed: Parity | None = None  # the first verdict, where the profile did not pass as it was
        self.pairs: Pairs = []  # for the picture: those that failed, or that were trained last

    def check(self, knobs: Values) -> Parity:
        if self._plain is None:
            self._plain = []
            for seed in range(SEEDS):
                self._told(f"plain {seed + 1}/{SEEDS}")
                self._plain.append(self._curve({}, STEPS, 1000 * seed, 0))
        pairs = []
        trained = {name: value for name, value in knobs.items() if name not in self._drawing}
        for seed, plain in enumerate(self._plain):
            self._told(f"tuned {seed + 1}/{SEEDS}")
            changed = self._curve(trained, STEPS, 1000 * seed, 0)
            if plain is not None and changed is not None:
                pairs.append((plain, changed))
        found = judge([(plain.losses, changed.losses) for plain, changed in pairs])
        same = self._same_batch(pairs, FIRST)
        if same.ok is not False and knobs.get("compile") in REPLAYED:
            later = self._same_batch(pairs, LATER)
            same = same if later.ok else later
        found = replace(found, batch=same)
        if same.ok is False:  # it says more than a curve that is worse
            found = replace(found, verdict=Verdict.FAIL, code=same.code)
        if self.failed is None:
            self.pairs = pairs
            self.failed = found if found.verdict is Verdict.FAIL else None
        return found

    def _same_batch(self, pairs: Pairs, which: int) -> OneBatch:
        """Where gradients differ, plain trainings with other random numbers (dropout's) say how much these do."""
        found = compare(pairs, which=which)
        if found.ok is not False:
            return found
        if self._chance is None:
            self._chance = []
            for seed, plain in enumerate(self._plain or ()):
                self._told(f"plain + {seed + 1}/{SEEDS}")
                other = self._curve({}, STEPS, 1000 * seed, 1)
                if plain is not None and other is not None:
                    self._chance.append((plain, other))
        return compare(pairs, self._chance, which)

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
