"""The tape: what the hooks append comes to the clock in order, in time, and in bounds."""

from _flatout_agent.timeline.event_buffer import MOST_LINES, Tape
from _flatout_agent.timeline.step_clock import StepClock


def new_tape():
    told = []
    tape = Tape(StepClock(0), lambda now: told.append((now, tape.clock.steps)))
    return tape, told


def test_windows_grow_with_the_run():
    """A week of steps leaves some thousand windows, not a million."""
    tape, windows = new_tape()
    week = 7 * 24 * 3600 * 10**9
    step = 400 * 10**6
    for now in range(step, week, step):
        tape.lines.append((tape.clock.step_ended, now, 1))
        tape.tick(now)
    assert 1000 < len(windows) < 10_000
    assert windows[-1][1] > 0.99 * tape.clock.steps


def test_what_is_on_it_is_told_in_order_at_the_end():
    tape, windows = new_tape()
    tape.due = 10**18
    tape.lines.append((tape.clock.fetched, 10, 20, 4))
    tape.inside(tape.clock.copied, 5)
    tape.lines.append((tape.clock.backward_began, 30))
    tape.lines.append((tape.clock.backward_ended, 40))
    tape.lines.append((tape.clock.step_ended, 50, 1))
    tape.tick(50)
    assert tape.clock.steps == 0
    tape.finish()
    assert (tape.clock.steps, tape.clock.samples, windows) == (1, 4, [])


def test_a_loop_without_steps_does_not_fill_the_memory():
    tape, _ = new_tape()
    for _ in range(3 * MOST_LINES):
        tape.inside(tape.clock.waited, 1)
    assert len(tape.lines) <= MOST_LINES


def test_one_step_in_eight_is_looked_at_closely_and_later_one_in_64():
    tape, _ = new_tape()
    seen = []
    for now in range(1, 1281):
        tape.tick(now)
        seen.append(tape.sampling)
    assert sum(seen[:128]) == 16
    assert sum(seen[128:]) == 18


def test_a_fault_of_the_clock_ends_there():
    tape, windows = new_tape()
    tape.lines.append((tape.clock.fetched, "not a time", None, 4))
    tape.read(100)
    tape.lines.append((tape.clock.step_ended, 150, 1))
    tape.read(200)
    assert windows == [(100, 0), (200, 1)]
