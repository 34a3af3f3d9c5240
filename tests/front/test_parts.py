"""The parts of a whole run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _flatout_agent.wire import FIRST_PHASES, PHASES
from flatout.measure import readings
from flatout.measure.parts import PARTS, parts_of
from flatout.measure.process_journals import attribute


@given(
    st.dictionaries(st.sampled_from(PHASES), st.floats(0, 1e5)),
    st.floats(0, 1e5),
)
def test_parts_add_up_to_the_phases(phases, outside):
    parts = parts_of(phases, outside)
    assert set(parts) == set(PARTS)
    assert sum(parts.values()) == pytest.approx(sum(phases.values()))
    assert min(parts.values()) >= -1e-6


def test_each_second_has_its_part():
    parts = parts_of(
        {"startup": 1.0, "settings": 2.0, "compile": 3.0, "input": 4.0, "script": 5.0, "turn": 6.0, "shutdown": 7.0}, 4.5
    )
    assert parts == {
        "start": 1.0,
        "building": 5.0,
        "steps": 4.5,
        "turns": 6.0,
        "validation": 0.0,
        "checkpoint": 0.0,
        "script": 4.5,
        "exit": 7.0,
        "unexplained": 0.0,
    }


def test_a_journal_of_the_first_version_is_read():
    seconds = {"startup": 2.0, "input": 1.0, "forward": 3.0, "unexplained": 0.5}
    window = {
        "kind": "window",
        "steps": 10,
        "samples": 40,
        "batches": 10,
        "phases": [int(seconds.get(name, 0) * 1e9) for name in FIRST_PHASES],
        "warm": {"samples": 12, "phases": [0] * len(FIRST_PHASES)},
    }
    head = {"kind": "process", "wire": 1, "pid": 1, "python": "3.11.7", "rank": None, "torch": {}}
    told = attribute([[head, window, {"kind": "end"}]], 7.0)
    assert told.phases["input"] == 1.0
    assert told.phases["shutdown"] == pytest.approx(0.5)
    assert (told.turns, told.script_outside_s) == (0, 0.0)


def test_lines_of_the_script_share_what_the_phase_took():
    window = {"own_lines": [["t.py:41", 600], ["t.py:9", 200], "odd"], "own_lines_seen": 1000}
    told = readings.script_lines(window, 20.0)
    assert [(line.site, line.spent_s) for line in told] == [("t.py:41", 12.0), ("t.py:9", 4.0)]
    assert readings.script_lines({}, 20.0) == []
