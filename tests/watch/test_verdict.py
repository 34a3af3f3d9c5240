"""What the summary says of the training: the doctor's rules, in the doctor's words."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from test_follow import Agent

from _flatout_agent import wire
from flatout.base.words import LANGUAGES, Words
from flatout.doctor import page
from flatout.watch import lines, verdict
from flatout.watch.follow import Follow
from flatout.watch.means import CardMeans, Mean, Means
from flatout.watch.session import Watched
from flatout.watch.view.finding_panel import findings
from flatout.watch.view.picture import Picture
from flatout.watch.view.rows import width_of
from flatout.watch.view.scene import Scene
from flatout.watch.view.traces import Traces

SPAWNED = 1_760_000_000.0


@pytest.fixture
def waiting(tmp_path):
    """A run that waits for its loader for most of the time, and goes on."""
    folder = tmp_path / ".flatout" / "runs" / "20260101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "job.json").write_bytes(wire.job_text(wire.new_job(str(folder), SPAWNED)))
    agent = Agent(folder)
    loader = {"site": "train.py:5", "workers": 0, "batch_size": 8, "pin_memory": False, "persistent_workers": False}
    for second in range(1, 60):
        loaders = [{**loader, "batches": 10 * second, "wait": 700_000_000 * second}]
        phases = {"input": 0.7, "forward": 0.2, "backward": 0.1}
        agent.window(second, 10 * second, phases=phases, batches=10 * second, loaders=loaders)
    return folder


@pytest.mark.parametrize("language", LANGUAGES)
def test_while_it_runs(waiting, language):
    judged = verdict.judge(waiting, Follow(waiting).poll(SPAWNED + 60))
    said = verdict.said(judged, Words(language))
    finding = next(one for one in judged.findings if one.code == "AP504")
    assert judged.summary.bound_by == "input"
    assert f"! AP504 {page.read('AP504', language).sentence(dict(finding.evidence))}" in said
    assert f"  {page.read('AP504', language).step(finding.fix[0])}" in said
    assert judged.verdict.findings[0]["code"] == "AP504"
    assert not any("{" in line for line in said)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_window_shows_it(waiting, language):
    judged = verdict.judge(waiting, Follow(waiting).poll(SPAWNED + 60))
    scene = Scene(picture=Picture(t=SPAWNED, verdict=judged.verdict), traces=Traces(), words=Words(language))
    rows = findings(scene, 70, 12)
    text = "".join(one.text for row in rows for one in row)
    assert {width_of(row) for row in rows} == {70}
    assert "AP504" in text
    assert "70 %" in text
    assert findings(Scene(picture=Picture(t=SPAWNED), traces=Traces(), words=Words(language)), 70, 12) == []


def test_too_young_or_gone(waiting):
    training = Follow(waiting).poll(SPAWNED + 60)
    training.steps = verdict.FEWEST_STEPS - 1
    assert verdict.judge(waiting, training) is None
    training.steps = 590
    (waiting / "summary.json").write_text("{")
    assert verdict.judge(waiting, training) is None
    shutil.rmtree(waiting)
    assert verdict.judge(waiting, training) is None or not verdict.judge(waiting, training).findings


def test_the_command_tells_it(waiting, flatout, tmp_path):
    environ = {"FLATOUT_HISTORY": str(tmp_path / "kept"), "HOME": os.environ.get("HOME", str(tmp_path))}
    told = json.loads(flatout("watch", "last", "--json", env=environ).stdout)
    assert told["verdict"]["bound_by"] == "input"


@pytest.mark.parametrize(("busy", "key"), [(95.0, "load.busy"), (30.0, "load.idle")])
def test_of_a_card_alone(busy, key):
    figures = {"utilisation": Mean(looks=5, mean=busy, low=busy, high=busy)}
    card = CardMeans(index=0, name="NVIDIA H200", uuid="x", memory_total_bytes=1, power_limit_w=1.0, looks=5, figures=figures)
    watched = Watched(started=0.0, ended=5.0, means=Means(looks=5, cards=[card]))
    assert Words("en")(key) in lines.summary(watched, Words("en"))
