"""A journal is all that a search needs to go on: from any prefix to the same end."""

import json

import pytest
from imagined import Machine, plan, search

from flatout.base.errors import RecordError, UsageError
from flatout.base.records import decode, dump
from flatout.base.words import Words
from flatout.tune.execution.search_journal import About, TuneLine, line_of, read_lines
from flatout.tune.execution.session import JOURNAL, Session, resumable
from flatout.tune.search.agent_answers import result_of
from flatout.tune.search.questions_and_answers import Finished, Status
from flatout.tune.search.search import Search


@pytest.fixture(scope="module")
def whole():
    machine = Machine(launch=9, device=8, prepare=15, drift=-0.0005, faults={("channels_last", "on"): Status.SEGFAULT})
    wanted = plan(budget_s=300.0)
    end, segments, results = search(machine, wanted)
    lines = [line_of(TuneLine(plan=wanted))]
    lines += [line_of(TuneLine(segment=s, result=r)) for s, r in zip(segments, results, strict=True)]
    return end, segments, lines


def test_from_any_prefix_to_the_same_end(whole):
    end, segments, lines = whole
    _, every = read_lines(lines)
    for cut in range(0, len(every) + 1, 7):
        wanted, results = read_lines(lines[: cut + 1])
        resumed = Search(wanted)
        step = resumed.next(results)
        for number in range(cut, len(every)):
            assert step == segments[number]
            step = resumed.next(every[: number + 1])
        assert step == end


def test_the_next_segment_is_a_function_of_the_results(whole):
    _, segments, lines = whole
    wanted, results = read_lines(lines)
    one = Search(wanted)
    for number in (30, 5, 60, 0):
        assert one.next(results[:number]) == segments[number]


def test_a_line_cut_short_is_left_out(whole):
    _, segments, lines = whole
    wanted, results = read_lines([*lines[:20], lines[20][: len(lines[20]) // 2]])
    assert len(results) == 19
    assert Search(wanted).next(results) == segments[19]


def test_what_an_agent_tells_in_its_details_is_read_again(whole):
    """Seen: bf16 tells that it casts its output back, and no journal with it could be gone on from."""
    _, segments, lines = whole
    told = {"dtype": "bf16", "roots": 1, "share": 0.5, "output_cast_back": True, "kinds": ["fused"], "nothing": None}
    outcomes = {"precision": {"status": "applied", "code": "", "details": told}}
    result = result_of({"id": segments[0].id, "status": "ok", "outcomes": outcomes}, 1.0)
    _, results = read_lines([lines[0], line_of(TuneLine(segment=segments[0], result=result))])
    assert results == [result]
    assert results[0].outcomes["precision"].details["output_cast_back"] is True


def test_a_damaged_line_in_the_middle_is_refused(whole):
    _, _, lines = whole
    with pytest.raises(RecordError):
        read_lines([*lines[:3], "{", *lines[4:]])
    with pytest.raises(RecordError):
        read_lines(lines[1:3])


def test_a_newer_line_is_refused(whole):
    _, _, lines = whole
    newer = json.dumps({**json.loads(lines[-1]), "version": 99})
    with pytest.raises(RecordError):
        read_lines([*lines[:-1], newer])


def test_results_of_another_search_are_refused(whole):
    _, _, lines = whole
    wanted, results = read_lines(lines)
    with pytest.raises(RecordError):
        Search(wanted).next(results[5:])


def test_the_end_is_a_record(whole):
    end, _, lines = whole
    assert all(line.count("\n") == 1 for line in lines)
    assert decode(json.dumps(dump(end)), Finished) == end


class Played:
    """Children that give the results of an earlier search again, until they are stopped."""

    def __init__(self, results, stop_at):
        self.results, self.stop_at = results, stop_at

    def carry_out(self, segment):
        if segment.id > self.stop_at:
            raise KeyboardInterrupt
        return self.results[segment.id - 1]


ABOUT = About(command=["train.py", "--epochs", "3"], script="digest", version="1")


@pytest.mark.parametrize("cut", [1, 40, -1, 0, b"\0\0\0\0", b'{"kind":"tune-li'])
def test_killed_in_the_middle_of_a_line_and_resumed_twice(cut, whole, tmp_path):
    """What is written after half a line must not continue it."""
    end, _, lines = whole
    wanted, every = read_lines(lines)
    journal = tmp_path / JOURNAL
    with pytest.raises(KeyboardInterrupt), Session(tmp_path, wanted, ABOUT) as first:
        first.run(Played(every, 10), lambda *_: None)
    data = journal.read_bytes()
    journal.write_bytes(data + cut if isinstance(cut, bytes) else data[: len(data) - cut] if cut >= 0 else data[:-1])
    with pytest.raises(KeyboardInterrupt), Session(tmp_path, None, ABOUT) as second:
        second.run(Played(every, 20), lambda *_: None)
    assert second.resumed in (9, 10)
    with Session(tmp_path, None, ABOUT) as third:
        assert third.resumed == 20
        assert third.run(Played(every, len(every)), lambda *_: None) == end
    assert all(json.loads(line) for line in journal.read_text(encoding="ascii").splitlines())


def refusal(folder, about=ABOUT):
    with pytest.raises(UsageError) as caught:
        resumable(folder, about)
    assert caught.value.exit_code == 2
    for language in ("en", "zh"):
        assert Words(language)(caught.value.key, **caught.value.params)
    return caught.value.key.removeprefix("tune-resume.")


def test_what_cannot_be_gone_on_from_is_one_sentence(whole, tmp_path):
    _, _, lines = whole
    head = line_of(TuneLine(about=ABOUT, plan=read_lines(lines)[0]))
    assert refusal(tmp_path / "nowhere") == "no-folder"
    assert refusal(tmp_path) == "no-journal"
    journal = tmp_path / JOURNAL
    newer = json.dumps({**json.loads(lines[5]), "version": 99}) + "\n"
    elsewhere = json.loads(lines[5])
    elsewhere["segment"]["warm_steps"] += 1  # as a version that searches differently would ask
    for text, expected in [
        ("", "damaged"),
        (head[:-40], "damaged"),
        ("\n", "damaged"),
        ("{}\n{}\n", "damaged"),
        ("\x00\xff no journal \n at all", "damaged"),
        ("".join([head, "{", *lines[1:3]]), "damaged"),
        ("".join([head, *lines[3:5]]), "damaged"),
        ("".join([head, *lines[1:5], newer]), "other-version"),
        ("".join([head, *lines[1:5], json.dumps(elsewhere), "\n", lines[6]]), "other-version"),
    ]:
        journal.write_text(text, encoding="latin-1")
        assert refusal(tmp_path) == expected, text[:60]
    journal.write_text("".join([head, *lines[1:5]]), encoding="ascii")
    assert refusal(tmp_path, About(command=["other.py"], script="digest")) == "other-script"
    assert refusal(tmp_path, About(command=ABOUT.command, script="edited")) == "changed-script"
    assert len(resumable(tmp_path, ABOUT).results) == 4
    with Session(tmp_path, None, ABOUT), pytest.raises(UsageError) as caught:
        Session(tmp_path, None, ABOUT)
    assert caught.value.key == "tune-resume.busy"


def test_a_journal_of_the_first_version_says_nothing_of_its_script(whole, tmp_path):
    _, _, lines = whole
    (tmp_path / JOURNAL).write_text("".join(lines[:7]), encoding="ascii")
    assert len(resumable(tmp_path, ABOUT).results) == 6
