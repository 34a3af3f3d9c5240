"""The live window, driven as its user drives it: real app, real session, recorded cards; only the door to NVML is fed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("textual")
from hypothesis import example, given, settings
from hypothesis import strategies as st
from recorded_screens import RUN, World

from flatout.base.records import Missing, replace
from flatout.base.words import LANGUAGES, Words
from flatout.machine import host, nvml_door
from flatout.machine.telemetry import CardSample
from flatout.report.terminal import cell_len
from flatout.watch.view import dialogs, page
from flatout.watch.view.rows import fit, width_of, wrapped
from flatout.watch.view.scene import LENGTHS_S, Scene
from flatout.watch.window import Dialog, Window

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "machine"))
from test_telemetry import Faulty

SCREENS = Path(__file__).parent / "screens"
SIZES = ((80, 24), (200, 60))


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Sessions of two minutes and a half, one for each number of cards."""
    made = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "UTC")
        if hasattr(time, "tzset"):
            time.tzset()

        def world(cards, training=True):
            if (cards, training) not in made:
                made[cards, training] = World(tmp_path_factory.mktemp("w"), patched, cards, 150, training)
            return made[cards, training]

        yield world
        for one in made.values():
            one.session.__exit__(None, None, None)
    if hasattr(time, "tzset"):
        time.tzset()


class Still:
    """What was seen last, again and again."""

    every_s, replayed, pace = 3600.0, False, 1.0

    def __init__(self, world):
        self.traces, self.picture = world.feed.traces, world.picture

    def turn(self):
        return self.picture

    def seek(self, seconds):
        pass

    def hold(self, paused):
        pass


def driven(source, size, act=None, language="en", **settings):
    """The app in a terminal of this size; `act(app, pilot)` uses it."""

    async def drive():
        app = Window(source, Words(language), host_name="lab-7", **settings)
        async with app.run_test(size=size) as pilot:
            for _ in range(100):
                if app._drawn or app.faults:
                    break
                await pilot.pause(0.02)
            await pilot.pause()
            if act is not None:
                await act(app, pilot)
            return text_of(app)

    return asyncio.run(drive())


def text_of(app):
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def shown(world, width=80, height=22, **changed):
    scene = Scene(picture=world.picture, traces=world.feed.traces, words=Words("en"), host_name="lab-7")
    scene = replace(scene, **changed)
    return scene, page.body(scene, width, height)


def plain(rows):
    return "\n".join("".join(one.text for one in row).rstrip() for row in rows)


# -- what is shown ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="no tzset")
@pytest.mark.parametrize("cards", [1, 16])
@pytest.mark.parametrize("size", SIZES)
def test_as_recorded(worlds, size, cards):
    """Line by line as it was looked at: FLATOUT_WRITE_SCREENS=1 writes it anew."""
    text = "\n".join(line.rstrip() for line in driven(Still(worlds(cards)), size).splitlines()) + "\n"
    file = SCREENS / f"{size[0]}x{size[1]}-{cards}.txt"
    if os.environ.get("FLATOUT_WRITE_SCREENS"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
    assert "power limit" in text
    assert RUN in text or cards == 16


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("cards", [0, 2, 16])
def test_every_row_is_as_wide_as_the_window(worlds, cards, language):
    world = worlds(cards)
    for width, heights in ((40, (3, 60)), (59, (22,)), (80, (22, 60)), (119, (22,)), (120, (3,)), (133, (60,)), (300, (80,))):
        for height in heights:
            scene, rows = shown(world, width, height, words=Words(language), mono=width % 2 == 0)
            bars = (page.top(scene, width), page.bottom(scene, width))
            assert {width_of(row) for row in (*rows, *bars)} == {width}, (width, height)
            assert not re.search(r"screen\.|watch\.|Missing|None|nan|\{", plain(rows)), (width, height)


def test_nothing_missing_is_shown_as_zero(worlds):
    scene, rows = shown(worlds(1), 100, 40)
    (fan,) = [row[place + 2] for row in rows for place, one in enumerate(row) if one.text == "fan"]
    assert (fan.text, fan.tip) == ("–", "not shown: not supported by this GPU")
    unknown = [
        replace(view, sample=replace(view.sample, **dict.fromkeys(GONE, Missing("card-gone")))) for view in scene.picture.cards
    ]
    gone = replace(scene, picture=replace(scene.picture, cards=unknown))
    card = plain(page.body(gone, 100, 40)).split("Training")[0]
    assert not re.search(r"\d+ (%|W|°C|MHz|GiB)", card)
    said = plain(dialogs.reasons(gone, 76))
    assert said.count("not shown") > 10


GONE = [name for name in CardSample.__struct_fields__ if name not in ("index", "name", "uuid")]


def test_without_a_card_the_rest_is_shown_and_why(worlds):
    _, rows = shown(worlds(0), 80, 22)
    text = plain(rows)
    assert text.startswith(" No GPU data: the package nvidia-ml-py is not installed.")
    assert "Machine lab-7" in text
    assert "the GPU was too hot" not in text
    assert "3,000" in text
    assert "Processes on the GPU" not in text


def test_a_slow_stretch_and_its_cause(worlds):
    world = worlds(1)
    _, rows = shown(world, 200, 58)
    text = plain(rows)
    assert "the GPU was too hot and lowered its clock (AP524)" in text
    assert any(one.style == "slow" for row in rows for one in row)
    assert world.picture.verdict.bound_by
    assert "What the doctor says" in text


def test_alerts_that_hold_stand_first(worlds):
    world = worlds(1)
    told = [replace(one, holds=True) for one in world.picture.told]
    scene, _ = shown(world)
    rows = page.body(replace(scene, picture=replace(world.picture, told=told)), 80, 22)
    assert rows[0][0].style == "alert"
    assert "91 °C, its limit is 92 °C" in plain(rows[:2])


def test_widths_of_chinese():
    row = fit(wrapped("显存已满，torch释放缓存后重试", 11)[0], 11)
    assert width_of(row) == 11
    assert all(width_of(row) <= 11 for row in wrapped("显存已满，torch释放缓存后重试 abc", 11))
    for cells in range(1, 9):
        assert cell_len("".join(one.text for one in fit(wrapped("训练a训练", 40)[0], cells))) == cells


@settings(max_examples=6)
@example(seed=218, width=80, height=24)  # the library fails where the doctor's rules ask for the driver
@given(seed=st.integers(0, 10**9), width=st.integers(1, 300), height=st.integers(1, 80))
def test_a_door_that_fails_at_any_call_never_stops_it(tmp_path_factory, seed, width, height):
    with pytest.MonkeyPatch.context() as patched:
        world = World(tmp_path_factory.mktemp("f"), patched, 3)
        fake = Faulty(seed, *world.fake.cards)
        patched.setitem(sys.modules, "pynvml", fake)
        patched.setattr(nvml_door, "LONGEST_PAUSE", 4)
        for _ in range(5):
            fake.cards = fake.all[: fake.dice.randint(0, 3)] if fake.dice.random() < 0.3 else fake.all
            world.fake.cards = ()  # what the recorded cards answer stays as it is
            world.picture = world.step()
            scene, rows = shown(world, width, height, words=Words(fake.dice.choice(LANGUAGES)))
            assert all(width_of(row) == width for row in rows) or width < page.NARROWEST
            dialogs.reasons(scene, 76)
        world.session.__exit__(None, None, None)


# -- keys and mouse -----------------------------------------------------------------------------------------------------------


def test_keys(worlds):
    async def act(app, pilot):
        await pilot.press("l")
        assert "实时" in text_of(app)
        await pilot.press("l", "plus")
        assert app.scene.length_s == LENGTHS_S[1]
        await pilot.press("minus", "t")
        assert app._look.name == "light"
        await pilot.press("question_mark")
        await pilot.pause()
        assert "Ends watching" in text_of(app)
        await pilot.press("escape", "r")
        await pilot.pause()
        assert isinstance(app.screen, Dialog)
        assert "not shown: not supported" in text_of(app)
        await pilot.press("q")  # closes what is in front
        await pilot.pause()
        assert not isinstance(app.screen, Dialog)
        await pilot.press("p")
        before = app.scene.picture
        app._source.picture = replace(before, t=before.t + 1)
        await app.look()
        assert app.scene.picture is before
        assert "paused" in text_of(app)
        await pilot.press("p")
        await app.look()
        assert app.scene.picture.t == before.t + 1
        await pilot.press("q")

    driven(Still(worlds(1)), (80, 24), act)


def test_mouse(worlds):
    async def act(app, pilot):
        lines = text_of(app).splitlines()
        y = next(place for place, line in enumerate(lines) if re.match(r"│\s+3 ", line))
        await pilot.click(offset=(4, y))
        assert app.scene.selected == 3
        await pilot.press("down", "down")
        assert app.scene.selected == 5
        x = lines[-1].index(" p pause")
        await pilot.click(offset=(x + 1, 23))
        assert app.scene.paused
        await pilot.hover(offset=(x, 10))
        await pilot.resize_terminal(30, 5)
        await pilot.pause()
        assert "too narrow" in text_of(app)

    driven(Still(worlds(16)), (80, 24), act)


def test_the_reason_is_there_when_one_points_at_it(worlds):
    async def act(app, pilot):
        lines = text_of(app).splitlines()
        y = next(place for place, line in enumerate(lines) if "fan –" in line)
        await pilot.hover(offset=(lines[y].index("fan –") + 4, y))
        assert app.query_one("#body").tooltip == "not shown: not supported by this GPU"

    driven(Still(worlds(1)), (80, 24), act)


def test_without_colours(worlds, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    async def act(app, pilot):
        styles = [segment.style for strip in app.screen._compositor.render_strips() for segment in strip if segment.style]
        colours = {colour.get_truecolor() for style in styles for colour in (style.color, style.bgcolor) if colour is not None}
        assert all(max(colour) - min(colour) == 0 for colour in colours)

    text = driven(Still(worlds(1)), (80, 24), act)
    assert "█" in text
    assert "▓" in text


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_process_is_ended_only_after_the_answer(worlds, tmp_path):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as victim:
        world = worlds(1)
        source = Still(world)
        one = replace(world.picture.processes[0], pid=victim.pid, ours=False)
        source.picture = replace(world.picture, processes=[one])

        async def act(app, pilot):
            for answer in ("n", "escape", "enter"):
                await pilot.press("k", "1")
                await pilot.pause()
                assert "time.sleep(60)" in text_of(app)  # as this system knows it
                await pilot.press(answer)
                await pilot.pause()
            assert victim.poll() is None
            await pilot.press("k", "1", "y")
            await pilot.pause()

        driven(source, (80, 24), act)
        assert victim.wait(10) == -signal.SIGTERM


def test_another_process_with_the_same_number_is_left_alone():
    known = host.identity(os.getpid())
    assert "python" in known["command"]
    assert host.end(os.getpid(), known["started"] - 5, signal.SIGTERM) == Missing("no-such-process")
    assert host.identity(2**30) == Missing("no-such-process")
    assert host.end(1, host.identity(1)["started"], 0) == Missing("no-such-process")


def test_a_fault_is_said_once_and_the_window_goes_on(worlds):
    source = Still(worlds(1))
    calls = []

    def turn():
        calls.append(1)
        if len(calls) < 3:
            raise RuntimeError("planted")
        return source.picture

    source.turn, source.every_s = turn, 0.05

    async def act(app, pilot):
        for _ in range(100):
            if app._drawn:
                break
            await pilot.pause(0.05)
        assert app.faults == 2
        assert "GPU 0" in text_of(app)

    driven(source, (80, 24), act)


def test_it_ends_by_itself(worlds):
    source = Still(worlds(1))
    source.every_s = 0.05
    codes = iter([None, 11])

    async def drive():
        app = Window(source, Words("en"), until=lambda: next(codes, 11))
        async with app.run_test(size=(80, 24)) as pilot:
            for _ in range(100):
                if app.return_value is not None:
                    break
                await pilot.pause(0.05)
        return app.return_value

    assert asyncio.run(drive()) == 11


# -- the command on a terminal ----------------------------------------------------------------------------------------------


def on_a_terminal(tmp_path, code, keys=b"", wait=b"", seconds=20):
    """What the command writes on a terminal of its own; `keys` are pressed when `wait` has appeared."""
    import pty

    lead, follow = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(follow, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environ = {**os.environ, "FLATOUT_LANG": "en", "TERM": "xterm-256color", "FLATOUT_HISTORY": str(tmp_path / "kept")}
    settings = {"stdin": follow, "stdout": follow, "stderr": follow, "cwd": tmp_path, "env": environ, "start_new_session": True}
    with subprocess.Popen([sys.executable, "-c", code], **settings) as running:
        os.close(follow)
        os.set_blocking(lead, False)
        said, pressed, until = b"", not keys, time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                said += os.read(lead, 65536)
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break  # nobody holds the other end any more
            if not pressed and wait in said:
                pressed = True
                os.write(lead, keys)
        if running.poll() is None and time.monotonic() >= until:
            running.kill()
        running.wait()
    os.close(lead)
    return running.returncode, said.decode("utf-8", "replace")


MAIN = "import sys; from flatout.cli.main import main; main(['watch', *{arguments!r}])"


@pytest.mark.skipif(sys.platform == "win32", reason="no terminals of one's own")
def test_the_window_on_a_real_terminal(tmp_path):
    code, said = on_a_terminal(tmp_path, MAIN.format(arguments=[]), b"q", b"CPU")
    assert code == 0
    assert "\x1b[?1049h" in said  # a screen of its own
    assert "Mean and highest" in said.rsplit("\x1b[?1049l", 1)[1]  # and the summary after it


@pytest.mark.skipif(sys.platform == "win32", reason="no terminals of one's own")
def test_without_textual_one_sentence_and_plain_lines(tmp_path):
    code, said = on_a_terminal(
        tmp_path, "import sys; sys.modules['textual'] = None; " + MAIN.format(arguments=["--for", "0.5"])
    )
    assert code == 0
    assert said.count("pip install 'flatout[watch]'") == 1
    assert "\x1b[?1049h" not in said
    assert "CPU" in said
