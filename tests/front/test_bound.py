"""Bound by what: planted shares, lags and busy times, and what stays unknown."""

import pytest

from flatout.machine.run_look import DeviceBusy, DeviceLag, DeviceLook
from flatout.measure import bound


def device(starved=None, busy=None):
    return DeviceLook(
        lag=None if starved is None else DeviceLag(samples=100, starved=round(100 * starved), mean_s=0.0),
        busy=None if busy is None else DeviceBusy(busy_s=busy, span_s=1.0),
    )


def judged(look, steps=200, **phases):
    return bound.judge(phases, look, steps).by


GPU_CASES = [
    # a sleep in __getitem__: the device is dry in mid-step too, because there is so little to do
    ("input", {"input": 8.0, "forward": 1.0, "backward": 1.0}, 1.0, 0.2),
    ("input", {"input": 4.5, "forward": 2.0, "backward": 2.0, "optimizer": 1.5}, 0.1, 0.55),
    # big unpinned copies
    ("copy", {"copy": 6.0, "forward": 2.0, "backward": 2.0}, 0.4, 0.5),
    # tiny kernels: events around a step see no gaps, so the busy share looks full
    ("launch", {"input": 1.0, "forward": 3.0, "backward": 4.0, "optimizer": 2.0}, 0.98, 0.97),
    ("launch", {"input": 1.0, "forward": 3.0, "backward": 4.0, "optimizer": 2.0}, 0.9, 0.4),
    # heavy compute, read by .item() at the end of each step
    ("compute", {"device_wait": 9.0, "forward": 0.3, "backward": 0.4, "optimizer": 0.3}, 0.02, 0.99),
    ("compute", {"device_wait": 9.0, "forward": 0.3, "backward": 0.4, "optimizer": 0.3}, 0.9, 0.99),
    # heavy compute without a read: the host waits in a launch, when the queue is full
    ("compute", {"forward": 5.0, "backward": 4.0, "optimizer": 1.0}, 0.0, 0.98),
    # the loader is slow and still quick enough for the device
    ("compute", {"input": 4.0, "device_wait": 4.0, "forward": 2.0}, 0.05, 0.97),
    # witnesses that contradict each other
    ("unknown", {"forward": 5.0, "backward": 5.0}, 0.1, 0.3),
]


@pytest.mark.parametrize(("by", "phases", "starved", "busy"), GPU_CASES)
def test_planted_causes(by, phases, starved, busy):
    assert judged(device(starved, busy), **phases) == by


def test_a_lag_that_is_longer_than_the_wait_hides_it():
    """Where the busy share is not known: 4 s of waiting in 200 steps are 20 ms each."""
    phases = {"input": 4.0, "device_wait": 3.0, "forward": 3.0}
    behind = DeviceLook(lag=DeviceLag(samples=100, starved=2, mean_s=0.03))
    in_time = DeviceLook(lag=DeviceLag(samples=100, starved=2, mean_s=0.005))
    assert (judged(behind, **phases), judged(in_time, **phases)) == ("compute", "input")


def test_without_a_device_only_what_is_clear_is_said():
    assert judged(device(), input=6.0, forward=2.0, backward=2.0) == "input"
    assert judged(device(), input=4.0, forward=3.0, backward=3.0) == "unknown"
    assert judged(device(), forward=5.0, backward=5.0) == "unknown"
    assert judged(device(), device_wait=6.0, forward=4.0) == "compute"


def test_too_little_is_unknown():
    assert judged(device(1.0, 1.0), steps=5, input=9.0, forward=1.0) == "unknown"
    assert judged(device(1.0, 1.0)) == "unknown"
    few = DeviceLook(lag=DeviceLag(samples=2, starved=2, mean_s=0.0))
    assert judged(few, forward=5.0, backward=5.0) == "unknown"


def test_compiling_and_start_up_are_no_part_of_the_loop():
    assert judged(device(), compile=100.0, startup=50.0, validation=50.0, input=6.0, forward=4.0) == "input"


def test_evidence_has_the_shares_and_the_witnesses():
    told = bound.judge({"input": 1.0, "forward": 3.0}, device(0.25, 0.5), 100)
    assert told.evidence == {"input": 0.25, "copy": 0.0, "device_wait": 0.0, "host": 0.75, "starved": 0.25, "busy": 0.5}
