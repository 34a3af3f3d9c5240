"""What an alert does outside the screen: exit codes of --until, programs of --notify."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time

import pytest
from test_follow import Agent

from _flatout_agent import wire
from flatout.base.errors import UsageError
from flatout.base.words import LANGUAGES, Words
from flatout.watch import events
from flatout.watch.alerts import Alert
from flatout.watch.events import CODES, Event, Notifier, code_of, command_of, events_named


def test_each_event_has_its_code():
    assert CODES == {
        "no-step": 10,
        "loss-not-a-number": 11,
        "memory-rising": 12,
        "temperature-limit": 13,
        "another-process": 14,
        "run-ended": 15,
    }
    wanted = events_named(["no-step,run-ended", "temperature-limit"])
    assert code_of([Alert(code="another-process")], wanted) is None
    assert code_of([Alert(code="another-process"), Alert(code="no-step")], wanted) == 10
    assert code_of([Alert(code="run-ended", evidence={"how": "finished"})], wanted) == 0
    assert code_of([Alert(code="run-ended", evidence={"how": "killed"})], wanted) == 15
    assert code_of([Alert(code="no-step")], frozenset()) is None
    assert events_named(["any"]) == frozenset(CODES)
    assert events_named([]) == frozenset()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_codes_are_said_in_the_help(language):
    said = Words(language)("option.watch-until")
    for name, code in CODES.items():
        assert f"{name}" in said
        assert str(code) in said
    assert str(events.NONE_CAME) in said


@pytest.mark.parametrize("name", ["overheated", ",", ""])
def test_an_event_that_is_none(name):
    with pytest.raises(UsageError, match="no-step"):
        events_named([name])


@pytest.mark.parametrize("command", ["", "no-such-program-here x", "'open"])
def test_a_command_that_is_none(command):
    with pytest.raises(UsageError, match="--notify"):
        command_of(command)


def program(code):
    return [sys.executable, "-c", code]


def test_the_event_comes_on_standard_input_and_no_shell_reads_it(tmp_path):
    file = tmp_path / "told"
    notifier = Notifier(program(f"import sys; open({str(file)!r}, 'a').write(sys.stdin.read())"), "lab-7")
    evil = Alert(code="another-process", about="0 $(touch x)", evidence={"name": "'; touch y", "pid": 9})
    notifier.tell(1.5, [evil, Alert(code="no-step")], "run-1")
    notifier.close()
    first, second = (json.loads(line) for line in file.read_text().replace("}\n{", "}\n\n{").split("\n\n"))
    assert (first["kind"], first["code"], first["about"], first["run_id"], first["host"]) == (
        "watch-event",
        "another-process",
        "0 $(touch x)",
        "run-1",
        "lab-7",
    )
    assert first["evidence"] == {"name": "'; touch y", "pid": 9}
    assert second["code"] == "no-step"
    assert not notifier.notes
    assert os.listdir(tmp_path) == ["told"]
    assert Event.KIND == "watch-event"


def test_a_program_that_fails_or_hangs_holds_up_nothing(monkeypatch):
    failing = Notifier(program("raise SystemExit(3)"), "h")
    failing.tell(0.0, [Alert(code="no-step"), Alert(code="no-step")], None)
    failing.close()
    (note,) = failing.notes
    assert (note.code, note.params["detail"]) == ("notify-failed", "exit 3")
    monkeypatch.setattr(events, "AT_THE_END_S", 0.2)
    monkeypatch.setattr(events, "TELLING_S", 1.0)
    hanging = Notifier(program("import time; time.sleep(20)"), "h")
    began = time.monotonic()
    hanging.tell(0.0, [Alert(code="no-step")] * 200, None)  # more than wait
    hanging.close()
    assert time.monotonic() - began < 0.8


def watching(tmp_path, *arguments):
    command = [sys.executable, "-m", "flatout", "watch", *arguments]
    environ = {**os.environ, "FLATOUT_LANG": "en", "FLATOUT_HISTORY": str(tmp_path / "kept"), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.skipif(sys.platform == "win32", reason="quoting of the command line")
def test_a_run_that_is_killed_ends_the_watching(tmp_path):
    folder = tmp_path / ".flatout" / "runs" / "20260101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "job.json").write_bytes(wire.job_text(wire.new_job(str(folder), time.time())))
    told = shlex.join(program("import sys; open('told', 'w').write(sys.stdin.read())"))
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as training:
        Agent(folder, pid=training.pid).window(1, 10)
        with watching(tmp_path, "--until", "run-ended", "--for", "30", "--notify", told) as watch:
            while b"step 10" not in watch.stdout.readline():
                pass
            training.kill()
            training.wait()
            watch.communicate(timeout=60)
    assert watch.returncode == 15
    event = json.loads((tmp_path / "told").read_text())
    assert (event["code"], event["evidence"]["how"]) == ("run-ended", "killed")


def test_none_came(tmp_path):
    with watching(tmp_path, "--until", "no-step", "--for", "0.3", "--json") as watch:
        said, _ = watch.communicate(timeout=60)
    assert watch.returncode == events.NONE_CAME
    assert json.loads(said)["kind"] == "watch-summary"


@pytest.mark.parametrize("more", [["--until", "any"], ["--notify", "true"]])
def test_one_look_waits_for_no_event(more):
    """Its exit code 0 would be taken for a run that came to its end."""
    ended = subprocess.run(
        [sys.executable, "-m", "flatout", "watch", "--once", *more], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "--once measures once" in ended.stderr
