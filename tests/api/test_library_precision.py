"""Precision: the scaler for fp16 alone, skipped steps counted, evaluation alike, one fall-back, a trial on the own steps."""

import math
import random

import pytest
import torch
from examples import given, settings, st
from trainings import LOSS, loop, training

from flatout import TrainingAccelerator
from flatout.api import resolving
from flatout.api.errors import ConfigurationError
from flatout.api.loss_watch import DIVERGED, EVERY, FINE, NOT_FINITE, judged
from flatout.api.precision_trial import BLOCKS, LOOKS, PAIRS, PrecisionTrial, timed, warming
from flatout.api.refusals import LossNotFiniteError


def begun(**config):
    accelerator = TrainingAccelerator({"use_gpu": False, **config})
    return accelerator, *accelerator.prepare(*training(dropout=0.0))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_it_learns_as_in_full_precision(precision):
    plain, model, optimizer, loader = begun(precision="no")
    losses = {}
    for name in ("no", precision):
        accelerator, model, optimizer, loader = begun(precision=name)
        loop(accelerator, model, optimizer, loader, epochs=8)
        with accelerator.evaluate(model):
            losses[name] = float(LOSS(model(loader.dataset.x).float(), loader.dataset.y))
        assert next(model.parameters()).dtype is torch.float32
    assert losses[precision] == pytest.approx(losses["no"], rel=0.05)
    assert plain.precision == "no"


def test_a_scaler_for_fp16_alone_and_skipped_steps_are_counted():
    for name in ("no", "bf16"):
        assert begun(precision=name)[0]._regime.scaler is None
    accelerator, model, optimizer, _ = begun(precision="fp16")
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for number in range(4):
        overflow = 1e38 if number % 2 else 1.0
        accelerator.backward(LOSS(model(torch.ones(4, 6)), torch.zeros(4, dtype=torch.long)) * overflow)
        accelerator.step(optimizer)
        if number == 0:
            after = [parameter.detach().clone() for parameter in model.parameters()]
        if number == 1:
            assert all(torch.equal(a, b) for a, b in zip(after, model.parameters(), strict=True))
    assert accelerator.skipped_steps == 2
    assert accelerator.steps == 4
    assert not torch.equal(before[0], after[0])


def test_clipping_sees_unscaled_gradients():
    accelerator, model, optimizer, _ = begun(precision="fp16")
    accelerator.backward(LOSS(model(torch.ones(4, 6)), torch.zeros(4, dtype=torch.long)))
    assert 0 < float(accelerator.clip(optimizer, 1.0)) < 100  # the scale is 65536
    assert float(accelerator.clip(optimizer, 0.5)) <= 1.01
    accelerator.step(optimizer)


def test_a_diverging_loss_falls_back_once_and_says_so():
    accelerator, model, optimizer, _ = begun(precision="bf16")
    weight = torch.ones((), requires_grad=True)
    for look in range(40):
        value = 1 / (1 + look) if look < 28 else 5.0 + look
        for _ in range(EVERY):
            accelerator.backward(weight * value)
    assert accelerator.precision == "no"
    assert sum("float32" in note for note in accelerator.notes) == 1
    with accelerator.autocast():
        assert model(torch.ones(2, 6)).dtype is torch.float32
    assert optimizer is not None


def test_a_loss_that_is_no_number_is_noticed_at_the_next_look():
    """In bf16 nothing leaves such a step out: one try in float32, and then it is said."""
    accelerator, _, _, _ = begun(precision="bf16")
    bad = torch.tensor(float("nan"), requires_grad=True)
    for _ in range(EVERY):
        accelerator.backward(bad * 1.0)
    assert accelerator.precision == "no"
    for _ in range(EVERY - 1):
        accelerator.backward(bad * 1.0)
    with pytest.raises(LossNotFiniteError):
        accelerator.backward(bad * 1.0)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=80))
@settings(max_examples=60, deadline=None)
def test_a_loss_that_only_falls_is_never_called_diverged(losses):
    assert judged(sorted(losses, reverse=True)) == FINE


def test_what_diverged_means():
    falling = [1.0 / (1 + number) for number in range(30)]
    assert judged([*falling, *[5.0 + number for number in range(12)]]) == DIVERGED
    assert judged([*falling, 50.0, 0.03, 0.03]) == FINE  # one spike
    assert judged([*falling, math.nan]) == FINE
    assert judged([*falling, math.nan, math.inf]) == NOT_FINITE


def timed_trial(monkeypatch, low, plain, hiccups=0.01):
    """A trial whose steps take so long, by a clock of its own; some of them longer."""
    now = [0.0]
    monkeypatch.setattr("flatout.api.precision_trial.time.perf_counter", lambda: now[0])
    trial = PrecisionTrial(torch.device("cpu"))
    is_low, used = trial.begin(), []
    while trial.result is None:
        used.append(is_low)
        now[0] += (low if is_low else plain) * (1 + hiccups * (len(used) % 3))
        is_low = trial.stepped()
    return trial, used


def test_the_trial_decides_by_measurement(monkeypatch):
    trial, used = timed_trial(monkeypatch, low=0.7, plain=1.0)
    assert trial.is_faster
    assert float(trial.told()["ratio"]) == pytest.approx(1 / 0.7, rel=0.05)
    assert len(used) == len(warming() + timed())
    assert sum(used) == len(used) / 2
    assert not timed_trial(monkeypatch, low=1.0, plain=1.0)[0].is_faster
    assert not timed_trial(monkeypatch, low=1.3, plain=1.0)[0].is_faster
    assert sum(BLOCKS) * 2 == len(BLOCKS)


def test_where_four_pairs_leave_it_open_more_are_looked_at(monkeypatch):
    """Steps of a millisecond are restless: on a card a gain of a half was lost in the noise of four pairs."""
    found, lengths = [], set()
    for seed in range(10):
        draw, now, used = random.Random(seed), [0.0], []
        monkeypatch.setattr("flatout.api.precision_trial.time.perf_counter", lambda now=now: now[0])
        trial = PrecisionTrial(torch.device("cpu"))
        is_low = trial.begin()
        while trial.result is None:
            used.append(is_low)
            now[0] += (0.66 if is_low else 1.0) * (1 + 2 * (draw.random() < 0.15))
            is_low = trial.stepped()
        assert sum(used) == len(used) / 2
        found.append(trial.is_faster)
        lengths.add(len(used))
    assert sum(found) >= 8, found
    assert lengths <= {len(warming()) + look // PAIRS * len(timed()) for look in LOOKS}
    assert len(lengths) > 1
    # What cannot be worth having is not looked at any longer.
    hopeless, used = timed_trial(monkeypatch, low=1.06, plain=1.0, hiccups=0.02)
    assert len(used) == len(warming() + timed())
    assert not hopeless.is_faster


def test_auto_is_tried_on_the_own_steps_and_settles(monkeypatch):
    monkeypatch.setattr(resolving, "best_precision", lambda torch, device: "bf16")
    accelerator = TrainingAccelerator({"use_gpu": False, "precision": "auto"})
    assert accelerator.config.precision_is_tried
    model, optimizer, loader = accelerator.prepare(*training())
    seen = set()
    loop(accelerator, model, optimizer, loader, epochs=40, each=lambda: seen.add(accelerator.precision))
    assert seen == {"no", "bf16"}
    assert accelerator._trial is None
    (said,) = [note for note in accelerator.notes if "own steps" in note]
    assert (accelerator.precision == "bf16") == ("continues in bf16" in said)


def test_what_cannot_be_had_is_said():
    with pytest.raises(ConfigurationError, match="fp9"):
        TrainingAccelerator({"precision": "fp9"})
    accelerator = TrainingAccelerator({"precision": "auto", "use_gpu": False})
    assert accelerator.config.precision in ("no", "bf16")
    assert "precision" in accelerator.config.reasons
