"""A session of watching, from the card and the journal to the lines that people read, and the command itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from planted_stretches import CALM, EFFECTS, Planted, make
from recorded_screens import WALL, Clock
from test_follow import Agent

from _flatout_agent import wire
from flatout.base import records
from flatout.base.records import Missing
from flatout.base.words import LANGUAGES, Words, catalogue
from flatout.watch import lines, reading
from flatout.watch.alerts import Alert
from flatout.watch.causes import slow_stretches
from flatout.watch.columns import CARD, RUN
from flatout.watch.session import Look, Session, Watched

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "machine"))
from fake_nvml import H200, MIB, FakeNvml


def card(**changed):
    return {
        **H200,
        "UtilizationRates": SimpleNamespace(gpu=97, memory=40),
        "Temperature": 64,
        "PowerUsage": 650_000,
        "ClockInfo": 1755,
        "CurrentClocksEventReasons": 0,
        "TemperatureThreshold": 92,
        "ComputeRunningProcesses": [SimpleNamespace(pid=os.getpid(), usedGpuMemory=40_000 * MIB)],
        **changed,
    }


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """A training of four minutes beside a card that is too hot for a while."""
    fake = FakeNvml(card())
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    folder = tmp_path / ".flatout" / "runs" / "20260101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "job.json").write_bytes(wire.job_text(wire.new_job(str(folder), WALL)))
    agent, clock = Agent(folder), Clock()
    environ = {"FLATOUT_HISTORY": str(tmp_path / "kept"), "HOME": str(tmp_path)}
    raised, looks, steps, t = [], [], 0, 0.0
    with Session(clock, tmp_path, environ) as session:
        for second in range(240):
            hot = 100 <= second < 170
            # Changed in place: the handle is asked for once, and is the card itself here.
            fake.cards[0].update(card(ClockInfo=1100, CurrentClocksEventReasons=0x40, Temperature=91) if hot else card())
            slower = 1755 / 1100 if hot else 1.0
            steps += 20
            # The script, the copies and the rest take their share of the second.
            t += 0.9 * slower + 0.1
            agent.window(t, steps, phases={"forward": 0.6 * slower, "backward": 0.3 * slower, "input": 0.1}, losses=[[8, 0.5]])
            clock.sleep(t - clock.passed)
            look, fresh = session.turn()
            looks.append(look)
            raised += fresh
        kept = reading.open_reader(next((tmp_path / "kept").glob("*.sqlite")))
        yield SimpleNamespace(looks=looks, raised=raised, summary=session.summary(), kept=kept, end=WALL + clock.passed)


def test_a_whole_session(watched):
    look = watched.looks[-1]
    assert (look.training.steps, look.training.running) == (4800, True)
    (slow,) = watched.summary.slow
    assert [cause.name for cause in slow.causes] == ["thermal-slowdown"]
    assert slow.causes[0].share == pytest.approx(1, abs=0.05)
    assert slow.slower == pytest.approx(0.9 * (1755 / 1100 - 1), abs=0.03)
    assert [alert.code for alert in watched.raised] == ["temperature-limit"]
    (means,) = watched.summary.means.cards
    temperature = means.figures["temperature_c"]
    assert (temperature.high, temperature.low, temperature.looks) == (91, 64, 240)
    assert temperature.mean == pytest.approx((170 * 64 + 70 * 91) / 240)
    assert means.held == {"HW_THERMAL_SLOWDOWN": 70}
    assert isinstance(look.sample.cards[0].fan_percent, Missing)
    # The card's figures and the training's lie on one clock.
    kept = watched.kept
    clocks = kept.points(CARD, H200["UUID"], "sm_clock_mhz", WALL, watched.end)
    steps = kept.points(RUN, "20260101-000000-abcd", "step_s", WALL, watched.end)
    first_low = next(point.t for point in clocks if point.low < 1500)
    first_slow = next(point.t for point in steps if point.high > 0.06)
    assert abs(first_low - first_slow) < 3
    for record in (look, watched.summary):
        assert records.decode(records.encode(record), type(record)) == record


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_said(watched, language):
    words = Words(language)
    said = lines.summary(watched.summary, words)
    text = "\n".join([*lines.now(watched.looks[-1], words), *lines.once(watched.looks[-1], words), *said])
    assert "97 %" in text
    assert "1755" in text
    assert "AP524" in text
    assert "HW_THERMAL_SLOWDOWN 29 %" in text
    assert words("missing.nvml-not-supported") in text  # why no fan is shown
    assert not any(marker in text for marker in ("{", "}", "watch.", "missing.", "None", "Missing"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_cause_alert_and_end_has_its_words(language):
    words, known = Words(language), catalogue(language)
    for cause in set(EFFECTS) - {"memory-bound-thermal", "not-seen"}:
        assert f"watch.cause.{cause}" in known
    for slow in slow_stretches(make(1, 240, [Planted("not-seen", 90, 170, 0.4)], **CALM).moments):
        assert words("watch.cause-not-seen") in lines.stretch(slow, words)[1]
    evidence = {
        "no-step": {"seconds": 61.0, "usual_step_s": 0.2},
        "loss-not-a-number": {"step": 4},
        "memory-rising": {"seconds_left": 600.0, "bytes_an_hour": 1e9, "code": "AP512"},
        "temperature-limit": {"temperature_c": 91, "limit_c": 92, "code": "HW104"},
        "another-process": {"pid": 9, "name": "x", "memory_bytes": 1 << 30},
        "run-ended": {"how": "killed", "steps": 9},
    }
    assert {name.removeprefix("watch.alert.") for name in known if name.startswith("watch.alert.")} == set(evidence)
    for code, values in evidence.items():
        said = lines.alert(Alert(code=code, about="0", evidence=values), words)
        assert "{" not in said
        assert said.startswith(("ALERT", "警报"))


def test_a_run_that_is_deleted_while_it_is_watched(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    folder = tmp_path / ".flatout" / "runs" / "20260101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "job.json").write_bytes(wire.job_text(wire.new_job(str(folder), WALL)))
    agent, clock = Agent(folder), Clock()
    agent.window(1, 10)
    with Session(clock, tmp_path, {"HOME": str(tmp_path)}) as session:
        session.turn()
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        clock.sleep(1)
        look, fresh = session.turn()
    assert look.training.ended == "record-gone"
    assert [alert.code for alert in fresh] == ["run-ended"]


def test_a_turn_costs_little(tmp_path, monkeypatch):
    """At one look a second: under a hundredth of a core, also where memory rises and is compared at every look."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(card()))
    folder = tmp_path / ".flatout" / "runs" / "20260101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "job.json").write_bytes(wire.job_text(wire.new_job(str(folder), WALL)))
    agent, clock, spent = Agent(folder), Clock(), 0.0
    with Session(clock, tmp_path, {"FLATOUT_HISTORY": str(tmp_path / "kept"), "HOME": str(tmp_path)}) as session:
        for second in range(1, 241):
            agent.window(second, 20 * second, memory={"reserved": (40 << 30) + (second << 20), "retries": 0})
            clock.sleep(1)
            began = time.process_time()
            session.turn()
            spent += time.process_time() - began
    assert spent / 240 < 0.010


# -- the command ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def quiet(monkeypatch, tmp_path):
    monkeypatch.setenv("FLATOUT_HISTORY", str(tmp_path / "kept"))


def test_once(flatout, quiet):
    text = flatout("watch", "--once").stdout.decode()
    assert "CPU" in text
    look = records.decode(flatout("watch", "--once", "--json").stdout, Look)
    assert isinstance(look.sample.host.cpu_percent, float)
    assert look.notes == []


@pytest.mark.calm
def test_for_a_while(flatout, quiet):
    ended = flatout("watch", "--for", "1.5", "--json")
    watched = records.decode(ended.stdout, Watched)
    assert watched.means.looks == 2
    assert json.loads(ended.stdout)["kind"] == "watch-summary"


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to single processes")
def test_ctrl_c_is_the_usual_end(quiet, tmp_path):
    command = [sys.executable, "-c", "from flatout.cli.main import main; main()", "watch"]
    environ = {**os.environ, "FLATOUT_LANG": "en", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE) as watching:
        assert b"CPU" in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        said, _ = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert b"Mean and highest" in said


@pytest.mark.parametrize("arguments", [["--for", "0"], ["--for", "-3"], ["--for", "nan"], ["--once", "--for", "3"]])
def test_a_length_that_is_none(flatout, quiet, arguments):
    ended = flatout("watch", *arguments)
    assert ended.returncode == 2
    assert "--for" in ended.stderr
