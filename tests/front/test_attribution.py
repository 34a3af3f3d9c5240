"""From journals to a summary: sums, splits, ranks, and what is said when little is known."""

import pytest

from _flatout_agent.wire import PHASES, parse_journal
from flatout.base.records import Missing
from flatout.measure.process_journals import attribute, close_account, read_story, split_copies


def journal(pid=1, rank=None, steps=10, samples=40, seconds=None, end=True, warm=None, **more):
    phases = {"startup": 1.0, "input": 2.0, "forward": 1.0, "backward": 2.0, "optimizer": 1.0, **(seconds or {})}
    window = {
        "kind": "window",
        "t": 0,
        "steps": steps,
        "samples": samples,
        "batches": 10,
        "phases": [int(phases.get(name, 0) * 1e9) for name in PHASES],
        "copy_sampled": [0, 0],
        "warm": warm,
        **more,
    }
    torch = {"version": "2.13.0", "cuda": None, "hip": None, "import_s": 1.5}
    lines = [{"kind": "process", "wire": 1, "pid": pid, "python": "3.11.7", "rank": rank, "torch": torch}, window]
    return [*lines, {"kind": "end", "ended": 0.0}] if end else lines


def test_what_is_left_over_is_shutdown_or_unexplained():
    told = attribute([journal()], 8.0)
    assert told.phases["shutdown"] == pytest.approx(1.0)
    told = attribute([journal(end=False)], 8.0)
    assert told.phases["unexplained"] == pytest.approx(1.0)
    assert [note.code for note in told.notes] == ["cut-short"]
    assert sum(told.phases.values()) == pytest.approx(8.0)


def test_what_the_parent_of_the_training_processes_does_later_is_no_shutdown():
    """Hogwild: the children train, and the process that started them validates when they have ended."""
    children = [journal(pid) for pid in (2, 3)]
    parent = journal(1, steps=0, samples=0, batches=0, seconds={"startup": 7.0, "validation": 4.0, "checkpoint": 0.5})
    told = attribute([parent, *children], 12.0)
    assert told.phases["validation"] == pytest.approx(4.0)
    assert told.phases["checkpoint"] == pytest.approx(0.5)
    assert told.phases["shutdown"] == pytest.approx(0.5)
    assert sum(told.phases.values()) == pytest.approx(12.0)
    beside = attribute([parent, *children], 9.0)  # while they train: it is in their time
    assert beside.phases["validation"] == pytest.approx(2.0)
    assert sum(beside.phases.values()) == pytest.approx(9.0)


def test_rate_leaves_warm_up_and_start_up_out():
    totals = [0] * len(PHASES)
    totals[PHASES.index("forward")] = int(0.5e9)
    warm = {"samples": 12, "phases": totals}
    told = attribute([journal(warm=warm)], 8.0)
    assert told.warmup_steps == 3
    assert told.samples_per_s == pytest.approx((40 - 12) / 5.5)
    assert told.step_s == pytest.approx(5.5 / 7)


def test_several_ranks_add_their_samples():
    told = attribute([journal(1, "0"), journal(2, "1"), journal(3, steps=0, samples=0, backwards=0)], 8.0)
    assert (told.steps, told.samples, told.processes) == (10, 80, 2)


def test_blocking_copies_are_split_by_what_the_device_saw():
    phases = dict.fromkeys(PHASES, 0.0) | {"copy": 10.0, "device_wait": 1.0}
    split = split_copies(phases, [2_000, 10_000])
    assert (split["copy"], split["device_wait"]) == (pytest.approx(2.0), pytest.approx(9.0))
    assert split_copies(phases, [0, 0]) == phases
    assert split_copies(phases, [12_000, 10_000])["copy"] == pytest.approx(10.0)


def test_clock_skew_never_makes_time():
    phases = dict.fromkeys(PHASES, 0.0) | {"startup": 1.0, "forward": 5.0}
    assert sum(close_account(phases, 5.9, finished=True).values()) == pytest.approx(5.9)


def test_no_journal_and_empty_journal():
    told = attribute([], 3.0)
    assert told.phases["unexplained"] == 3.0
    assert told.samples == Missing("no-steps")
    assert read_story([]) is None
    assert [note.code for note in attribute([[]], 3.0).notes] == ["torch-not-imported"]


def test_faults_of_our_own_are_told_once():
    fault = {"kind": "fault", "where": "loader", "text": "ValueError: x"}
    told = attribute([[*journal(), fault, fault]], 8.0)
    assert [note.code for note in told.notes] == ["own-fault"]


def test_a_journal_cut_in_the_middle_of_a_line():
    assert parse_journal('{"kind":"process"}\n{"kind":"win') == [{"kind": "process"}]
    assert parse_journal("\x00\x01 not json\n[1]\n") == []
