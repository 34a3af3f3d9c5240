"""Alerts: each raised where it must be, not on the nearest healthy run, and told once."""

from __future__ import annotations

from flatout.base.records import Missing, replace
from flatout.machine.telemetry import CardProcess, CardSample, Sample
from flatout.watch.alerts import Raised, alerts
from flatout.watch.follow import Training
from flatout.watch.moments import Span

GIB = 1 << 30
NOW = 1_760_000_000.0
OWN = CardProcess(pid=7, name="python3", memory_bytes=10 * GIB)


def training(**changed):
    plain = Training(run_id="run", pid=7, pids=[7], steps=500, step_s=0.2, last_told=NOW - 1, pause_s=1.0, longest_s=2.0)
    return replace(plain, **changed)


def look(t=NOW, **changed):
    card = CardSample(
        index=0,
        name="NVIDIA H200",
        uuid="GPU-0",
        temperature_c=64,
        temperature_limit_c=92,
        memory_used_bytes=60 * GIB,
        memory_total_bytes=140 * GIB,
        processes=(OWN,),
    )
    return Sample(t=t, cards=(replace(card, **changed),))


def looks(number=10, **changed):
    return [look(NOW - number + second, **changed) for second in range(number)]


def codes(found):
    return [alert.code for alert in found]


def test_a_healthy_training_raises_nothing():
    assert alerts(NOW, training(), spans([50 * GIB] * 100), looks()) == []
    assert alerts(NOW, None, [], []) == []
    assert alerts(NOW, Training(run_id="run"), [], []) == []


def test_no_step_for_ten_times_the_usual():
    assert codes(alerts(NOW + 12, training(), [], [])) == ["no-step"]
    assert alerts(NOW + 8, training(), [], []) == []
    # A slow training, an old run whose journal is written every minute, and one that has validated for half a minute before.
    assert alerts(NOW + 30, training(step_s=4.0), [], []) == []
    assert codes(alerts(NOW + 60, training(step_s=4.0), [], [])) == ["no-step"]
    assert alerts(NOW + 60, training(pause_s=60.0), [], []) == []
    assert alerts(NOW + 50, training(longest_s=30.0), [], []) == []
    assert codes(alerts(NOW + 90, training(longest_s=30.0), [], [])) == ["no-step"]
    assert alerts(NOW + 900, training(step_s=Missing("no-steps")), [], []) == []


def test_a_loss_that_is_no_number():
    (alert,) = alerts(NOW, training(not_finite_from=440), [], [])
    assert (alert.code, alert.evidence) == ("loss-not-a-number", {"step": 440})


def spans(reserved):
    return [Span(start=NOW + i, end=NOW + i + 1, steps=5, reserved_bytes=held) for i, held in enumerate(reserved)]


def test_memory_that_will_be_full_within_the_hour():
    rising = spans([(40 + second // 10) * GIB for second in range(200)])
    (alert,) = alerts(NOW, training(), rising, looks())
    assert (alert.code, alert.evidence["code"]) == ("memory-rising", "AP512")
    assert 700 < alert.evidence["seconds_left"] < 900
    slowly = spans([40 * GIB + second * (GIB // 100) for second in range(200)])
    assert alerts(NOW, training(), slowly, looks()) == []  # two hours and more
    settled = spans([min(40 + second // 10, 50) * GIB for second in range(200)])
    assert alerts(NOW, training(), settled, looks()) == []  # it came and stays
    lately = spans([min(40 + second // 5, 64) * GIB for second in range(200)])
    assert alerts(NOW, training(), lately, looks()) == []  # it rose for most of the time, and has stopped
    swinging = spans([(40 + second % 20) * GIB for second in range(200)])
    assert alerts(NOW, training(), swinging, looks()) == []
    assert alerts(NOW, training(), rising, []) == []  # nobody tells how much there is


def test_a_card_at_its_limit():
    hot = looks(temperature_c=91)
    assert codes(alerts(NOW, training(), [], hot)) == ["temperature-limit"]
    assert alerts(NOW, training(), [], [*looks(), hot[-1]]) == []
    assert alerts(NOW, training(), [], looks(temperature_c=Missing("implausible"))) == []
    assert alerts(NOW, training(), [], looks(temperature_c=91, temperature_limit_c=Missing("nvml-not-supported"))) == []


def test_another_process_comes_onto_the_card():
    other = CardProcess(pid=99, name="jupyter", memory_bytes=4 * GIB)
    after = [*looks(), look(processes=(OWN, other))]
    (alert,) = alerts(NOW, training(), [], after)
    assert (alert.code, alert.evidence) == ("another-process", {"pid": 99, "name": "jupyter", "memory_bytes": 4 * GIB})
    assert alerts(NOW, training(), [], looks(processes=(OWN, other))) == []  # it was there before
    small = replace(other, memory_bytes=20 << 20)
    assert alerts(NOW, training(), [], [*looks(), look(processes=(OWN, small))]) == []
    assert alerts(NOW, training(pids=[7, 99]), [], after) == []  # the run's own
    elsewhere = [look(processes=()), look(processes=(other,))]
    assert alerts(NOW, training(), [], elsewhere) == []  # another card


def test_a_run_that_ended():
    (alert,) = alerts(NOW + 900, training(running=False, ended="killed"), [], [])
    assert (alert.code, alert.evidence["how"]) == ("run-ended", "killed")


def test_each_is_told_once_and_again_when_it_comes_again():
    raised = Raised()
    hanging = alerts(NOW + 12, training(), [], [])
    assert raised.new(hanging) == hanging
    assert raised.new(alerts(NOW + 13, training(), [], [])) == []
    assert raised.new([]) == []
    assert raised.new(hanging) == hanging
