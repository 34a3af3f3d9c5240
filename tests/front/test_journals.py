"""Journals of every length: only the last window counts, and nothing else is lost."""

import json
import tracemalloc

from _flatout_agent.wire import Journal
from flatout.launch import journals


def test_the_agents_own_lines_are_recognised(tmp_path):
    journal = Journal(str(tmp_path), 7)
    journal.write("process", pid=7)
    for steps in range(50):
        journal.write("window", steps=steps)
    journal.write("fault", where="x", text="y")
    journal.write("end", ended=1.0)
    (lines,) = journals.read(tmp_path)
    assert [line["kind"] for line in lines] == ["process", "fault", "end", "window", "window"]
    assert lines[-1]["steps"] == 49


def test_a_last_window_that_was_cut_short(tmp_path):
    path = tmp_path / "journal-7.jsonl"
    path.write_text(
        '{"kind":"process","pid":7}\n{"kind":"window","steps":1}\n{"kind":"window","steps":2}\n{"kind":"window","st'
    )
    assert [line.get("steps") for line in journals.read_one(path)] == [None, 2]


def test_a_month_of_windows_takes_no_more_memory_than_a_minute(tmp_path):
    path = tmp_path / "journal-7.jsonl"
    window = json.dumps({"kind": "window", "losses": [[step, 1.0] for step in range(64)]}, separators=(",", ":"))
    with path.open("w") as file:
        file.write('{"kind":"process","pid":7}\n')
        file.writelines(f"{window}\n" for _ in range(20_000))
    tracemalloc.start()
    try:
        lines = journals.read_one(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(lines) == 3
    assert path.stat().st_size > 10_000_000
    assert peak < 2_000_000


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "journal-7.jsonl").write_bytes(b'\xff\xfe\x00{"kind":"window"\n{"kind":"process","pid":7}\n')
    assert journals.read(tmp_path) == [[{"kind": "process", "pid": 7}]]
