"""A finished run, watched again: from its journals, its record, and what the history holds of the same time."""

from __future__ import annotations

import json
import sys

import pytest
from recorded_screens import RUN, Clock, World
from test_window import driven, plain

from flatout.base import records
from flatout.base.errors import UsageError
from flatout.base.records import Missing
from flatout.base.words import LANGUAGES, Words
from flatout.cli import watch
from flatout.watch import lines, replay
from flatout.watch.feed import Feed
from flatout.watch.replay import Replay
from flatout.watch.session import Session, Watched
from flatout.watch.view import page
from flatout.watch.view.scene import Scene


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run of two and a half minutes beside one card that was too hot for a while; its folder, and the history."""
    folder = tmp_path_factory.mktemp("r")
    with pytest.MonkeyPatch.context() as patched:
        world = World(folder, patched, 1, 150)
        slow = world.session.slow()
        world.agent.journal.write("end", ended=1.0)
        world.session.__exit__(None, None, None)
    return folder, world, slow, {"FLATOUT_HISTORY": str(folder / "kept"), "HOME": str(folder)}


def played(ended):
    folder, _, _, environ = ended
    clock = Clock()
    return Replay(replay.find(RUN[:10], folder, environ), clock, folder, environ), clock


def test_it_tells_what_the_session_told(ended):
    again, _ = played(ended)
    _, world, slow, _ = ended
    assert [one.causes[0].name for one in again.slow] == [one.causes[0].name for one in slow] == ["thermal-slowdown"]
    assert again.slow[0].causes[0].share == pytest.approx(slow[0].causes[0].share, abs=0.05)
    last = again.picture(again.ended)
    assert (last.training.steps, last.training.running, last.training.ended) == (world.steps, False, "finished")
    card = last.cards[0].sample
    assert (card.name, card.temperature_limit_c, card.held_by) == ("NVIDIA H200", 92, ("SW_POWER_CAP",))
    assert card.temperature_c == world.picture.cards[0].sample.temperature_c
    assert card.fan_percent == Missing("not-kept")
    watched = again.watched()
    assert watched.means.cards[0].figures["temperature_c"].high == 91
    assert records.decode(records.encode(watched), Watched) == watched


def test_a_window_opened_again_begins_with_the_last_minutes(ended, monkeypatch):
    folder, world, _, environ = ended
    monkeypatch.setitem(sys.modules, "pynvml", world.fake)
    with Session(world.clock, folder, environ) as session:
        feed = Feed(session)
        world.clock.sleep(2)
        feed.turn()
        assert "card.0.temperature_c" not in feed.traces.names()  # the first picture does not wait for the history
        world.clock.sleep(1)
        picture = feed.turn()
        seen = feed.traces.window("card.0.temperature_c", picture.t, 120, 12)
    assert None not in seen
    assert max(seen) > 85


def test_what_came_later_is_not_shown(ended):
    again, clock = played(ended)
    begun = again.turn()
    assert (begun.training.steps, begun.slow) == (0, [])
    clock.sleep(30 / again.pace)
    half = again.turn()
    assert 400 < half.training.steps < 700
    assert half.training.running
    assert half.training.left_s == pytest.approx(again.ended - half.t, abs=2)
    again.hold(True)
    clock.sleep(20)
    assert again.turn().t == half.t
    again.seek(-1000)
    assert again.turn().t == again.started
    again.seek(10_000)
    assert again.turn().slow


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_window_plays_it(ended, language):
    again, _ = played(ended)
    again.seek(1e6)
    again.every_s = 3600.0

    async def act(app, pilot):
        await pilot.press("left")
        await app.look()
        assert app.scene.picture.t == pytest.approx(again.ended - 30)

    text = driven(again, (120, 40), act, language)
    assert Words(language)("screen.replay", pace="3") in text
    assert "H200" in text


def test_a_run_that_nobody_watched(ended, tmp_path):
    folder, _, _, _ = ended
    again = Replay(replay.find(RUN, folder, {}), Clock(), folder, {"FLATOUT_HISTORY": str(tmp_path)})
    last = again.picture(again.ended)
    assert (last.cards, last.no_cards) == ([], Missing("not-kept"))
    scene = Scene(picture=last, traces=again.traces, words=Words("en"), replayed=True)
    assert "the history does not contain it" in plain(page.body(scene, 100, 30))
    said = "\n".join(lines.summary(again.watched(), Words("en")))
    assert said.startswith("The run took 2 min")
    assert "CPU" not in said


def test_which_run(ended, tmp_path):
    folder, _, _, environ = ended
    place = folder / ".flatout" / "runs" / RUN
    assert replay.find(str(place), tmp_path, environ) == place
    assert replay.find(str(place / "summary.json"), tmp_path, environ) == place
    assert replay.find("last", folder, environ).name == RUN
    with pytest.raises(UsageError, match=RUN):
        replay.find("2019", folder, environ)
    with pytest.raises(UsageError, match="no flatout run was started"):
        replay.find("last", tmp_path, {})


def test_damaged_journals(ended, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "journal-1.jsonl").write_text('garbage\n{"kind":"window","t":"x"}\n{"kind": "process"}\n')
    again = Replay(folder, Clock(), tmp_path, {"FLATOUT_HISTORY": str(tmp_path)})
    picture = again.picture(again.ended)
    assert picture.training.steps == 0
    assert lines.summary(again.watched(), Words("en"))


def test_the_command(ended, flatout):
    folder, _, _, environ = ended
    said = flatout("watch", "last", "--json", cwd=folder, env=environ)
    assert json.loads(said.stdout)["slow"][0]["causes"][0]["name"] == "thermal-slowdown"
    with pytest.raises(UsageError, match="--for"):
        watch._replay("last", ["--for"], Words("en"), False, False)
