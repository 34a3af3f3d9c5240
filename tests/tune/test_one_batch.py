"""What two trainings make of one batch, over imagined gradients: rounding passes, what learns something else does not."""

import math
import random

import pytest

from flatout.base.records import replace
from flatout.measure.one_batch import LATER, Look, Training, compare
from flatout.tune.confirmation.parity_runs import Gate

SIZES = (256, 64, 64, 8)
SCALES = (1.0, 0.5, 0.1, 0.001)  # of each parameter's gradient


def training(seed, loss=2.0, noise=0.0, scale=1.0, before=(2.2, 2.1), change=None):
    """`noise` moves every number of the gradient, `change` does something to one parameter's."""
    draw, stir = random.Random(seed), random.Random(seed + 1000 * round(1e6 * noise))
    sample = []
    for size, length in zip(SIZES, SCALES, strict=True):
        clean = [length * draw.gauss(0, 1) for _ in range(size)]
        sample.append([scale * (number + noise * length * stir.gauss(0, 1)) for number in clean])
    if change is not None:
        change(sample)
    norms = [math.sqrt(sum(number**2 for number in part)) for part in sample]
    look = Look(begun=len(before), ended=len(before) + 1, norms=norms, sample=sample)
    return Training(losses=[*before, loss, 1.9, 1.8], begun=len(before), looks=[look])


def pairs(**changed):
    return [(training(seed), training(seed, **changed)) for seed in range(3)]


def upside_down(sample):
    sample[2][:] = [-number for number in sample[2]]


def gone(sample):
    sample[1][:] = [0.0] * len(sample[1])


def tiny_gone(sample):
    sample[3][:] = [0.0] * len(sample[3])


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.1])
def test_rounding_is_the_same_step(noise):
    found = compare(pairs(noise=noise, loss=2.0 * (1 + noise / 20)))
    assert (found.ok, found.pairs) == (True, 3)
    assert found.cosine > 0.98


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"loss": 1.8}, "other-loss"),
        ({"scale": 0.5}, "other-length"),
        ({"noise": 1.0}, "other-length"),
        ({"scale": -1.0}, "other-direction"),
        ({"change": upside_down}, "other-direction"),
        ({"change": gone}, "gradient-missing"),
    ],
)
def test_another_step_is_named(changed, code):
    found = compare(pairs(**changed))
    assert (found.ok, found.code) == (False, code), found


def test_a_parameter_whose_gradient_is_rounding_alone_says_nothing():
    assert compare(pairs(change=tiny_gone)).ok is True


def test_what_does_not_repeat_itself_is_not_compared():
    for before in ((2.2, 2.1002 * 1.001), (2.2,), ()):
        found = compare(pairs(loss=1.0, before=before))
        assert (found.ok, found.code) == (None, "not-repeatable"), before


def test_what_cannot_be_laid_side_by_side_is_said_so():
    plain = training(0)
    (look,) = plain.looks
    others = [
        training(0, scale=math.nan),  # an overflow in the first scaled step; a training of such numbers shows in its curve
        Training(losses=plain.losses, begun=2),
        Training(losses=plain.losses, begun=2, looks=[None]),
        Training(losses=plain.losses, begun=2, looks=[replace(look, norms=[*look.norms, 1.0])]),
        Training(losses=plain.losses, begun=2, looks=[replace(look, ended=5)]),
    ]
    for other in others:
        found = compare([(plain, other)] * 3)
        assert (found.ok, found.code) == (None, "not-comparable")
    assert compare([]).ok is None


def test_losses_that_cross_zero_have_no_ratio_of_their_own():
    """A critic's: 0.002 beside 0.5. A rounding difference of it is no other loss, half the reach is."""
    kinds = {0.0022: True, 0.3: False}
    for loss, ok in kinds.items():
        before = (0.5, -0.4)
        changed = [(training(seed, loss=0.002, before=before), training(seed, loss=loss, before=before)) for seed in range(3)]
        assert compare(changed).ok is ok, loss


DROPPED = {"noise": 0.8, "scale": 0.8, "loss": 2.05}  # other masks of a dropout: other numbers, the same kind of step


def test_what_other_random_numbers_change_is_not_blamed_on_a_knob():
    changed = pairs(**DROPPED)
    assert compare(changed).ok is False
    chance = [
        (training(0), training(0, noise=0.3, scale=0.99, loss=2.0)),  # one draw may be small by luck
        (training(1), training(1, noise=0.75, scale=0.8, loss=1.96)),
    ]
    assert compare(changed, chance).ok is True
    assert compare(pairs(loss=1.2), chance).code == "other-loss"
    assert compare(changed, [(training(0), training(0))]).ok is False, "nothing is drawn there: it was the knob"


@pytest.mark.parametrize(("draws_change", "verdict"), [(True, "pass"), (False, "fail")])
def test_the_gate_asks_how_much_chance_does_where_gradients_differ(draws_change, verdict):
    asked = []

    def curve(knobs, steps, seed, draws):
        asked.append(draws)
        one = training(seed // 1000, **(DROPPED if knobs or (draws and draws_change) else {}))
        return Training(losses=[*one.losses[:3], *[2 - step / 60 for step in range(60)]], begun=2, looks=one.looks)

    found = Gate(curve, lambda _: None).check({"precision": "bf16"})
    assert (found.verdict, found.batch.ok) == (verdict, verdict == "pass"), found
    assert asked == [0] * 6 + [1] * 3
    asked.clear()
    assert Gate(curve, lambda _: None).check({}).batch.ok is True
    assert asked == [0] * 6, "nothing differed"


def test_what_replays_its_kernels_is_looked_at_once_more_when_it_does():
    """The first calls of CUDA graphs are plain: wrong ones would pass."""

    def curve(knobs, steps, seed, draws):
        one = training(seed // 1000)
        (look,) = one.looks
        later = training(seed // 1000, change=upside_down if knobs else None).looks[0]
        losses = [*one.losses[:3], *[2 - step / 60 for step in range(60)]]
        return Training(losses=losses, begun=2, looks=[look, replace(later, begun=8, ended=9)])

    for value, ok in (("graphs", False), ("reduce-overhead", False), ("default", True)):
        assert Gate(curve, lambda _: None).check({"compile": value}).batch.ok is ok, value
    assert compare([(curve({}, 60, 0, 0), curve({"a": "b"}, 60, 0, 0))], which=LATER).code == "other-direction"


def test_knobs_that_only_draw_otherwise_are_not_trained_with():
    seen = []

    def curve(knobs, steps, seed, draws):
        seen.append(dict(knobs))
        return Training(losses=[2 - step / 60 for step in range(60)])

    gate = Gate(curve, lambda _: None, {"workers"})
    knobs, parity, _ = gate.repaired({"precision": "bf16", "workers": "4"})
    assert (knobs, parity.verdict) == ({"precision": "bf16", "workers": "4"}, "pass")
    assert seen == [{}] * 3 + [{"precision": "bf16"}] * 3
