"""A configuration tuned with a real script that reads it; the comparison of two files and the exploring, in pieces."""

import contextlib
import hashlib
import io
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
yaml = pytest.importorskip("yaml")

from flatout.base import records
from flatout.base.records import Missing
from flatout.knobs.model import Numerics
from flatout.measure.one_batch import Training
from flatout.measure.statistics import Answer
from flatout.tune.config import explore, measure
from flatout.tune.config.config_file import parsed
from flatout.tune.config.known_keys import explored
from flatout.tune.config.wishes import Change, ConfigOutcome, How, State
from flatout.tune.search.questions_and_answers import Ceilings, Decision, Ending, Finished, Mode, SegmentResult, Status, Verdict

# Loading sleeps, so that workers help on any machine. `use_amp` stands in the file, and the script does not read it.
SCRIPT = """
import argparse, time
import torch, yaml
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Sleepy(Dataset):
    def __len__(self):
        return 6000
    def __getitem__(self, index):
        time.sleep(0.006)
        return torch.full((8,), float(index % 7)), index % 3

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    with open(parser.parse_args().config, encoding="utf-8") as file:
        train = yaml.safe_load(file)["train"]
    net = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    workers = train["num_workers"]
    for epoch in range(9):
        for x, y in DataLoader(Sleepy(), batch_size=train["batch_size"], shuffle=True, num_workers=workers):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
CONFIG = (
    "# the small one\ntrain:\n  batch_size: 8   # per step\n  num_workers: 0  # 数据加载\nuse_amp: off\nseed: &s 7\nagain: *s\n"
)


@pytest.mark.alone
@pytest.mark.thorough
def test_what_the_trials_kept_stands_in_the_file_and_the_file_is_measured(flatout, script, tmp_path):
    path = script(SCRIPT, "main.py")
    (tmp_path / "configs").mkdir()
    source = tmp_path / "configs" / "small_config.yaml"
    source.write_text(CONFIG, encoding="utf-8")
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    ended = flatout(
        "tune", "--config", "configs/small_config.yaml", "--budget", "45s", "--only", "workers", "--json", "--",
        sys.executable, path, "--config", "{config}", timeout=285,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    record = json.loads(ended.stdout)
    assert record["how"] == "measured"
    (row,) = (row for row in record["changes"] if row["key"] == "num_workers")
    assert (row["path"], row["before"], row["how"]) == ("train.num_workers", 0, "measured")
    target = tmp_path / record["target"]
    assert target.name == "small_gpu_optimized.yaml"
    wanted = CONFIG.replace("num_workers: 0", f"num_workers: {row['after']}")
    assert target.read_text(encoding="utf-8") == wanted
    found = record["verification"]
    assert found["done"], ended.stderr
    assert found["comparison"]["answer"] == "faster", ended.stderr
    assert found["comparison"]["lower"] > 1.1
    assert found["new_rate"] > found["old_rate"]
    assert "the new configuration" in ended.stderr
    # Nothing else is left behind: the profile is in the file, the temporary one is gone, the original is as it was.
    assert record["profile"] == {}
    assert not (tmp_path / "flatout.toml").exists()
    assert sorted(one.name for one in source.parent.iterdir()) == ["small_config.yaml", "small_gpu_optimized.yaml"]
    assert hashlib.sha256(source.read_bytes()).hexdigest() == before


# -- the pieces, with arms that are told ------------------------------------------------------------------------------------


class Told:
    """An arm that gives what it is told; keeps what was asked of it, and whether two children ever lived at once."""

    living: set = set()  # noqa: RUF012 - shared on purpose

    def __init__(self, rate, status=Status.OK, ready=None):
        self.rate, self.status, self.ready, self.asked = rate, status, ready or {"workers": 0}, []

    def look(self):
        Told.living.add(self)
        return self.ready or None

    def carry_out(self, segment):
        Told.living.add(self)
        assert Told.living == {self}, "two children at once"
        self.asked.append(segment)
        rate = self.rate * (1 + 0.01 * (segment.id % 3))
        return SegmentResult(
            id=segment.id, status=self.status, took_s=1.0, samples=rate, seconds=1.0, steps=9, memory_peak=1 << 30
        )

    def stop(self):
        Told.living.discard(self)


@pytest.fixture(autouse=True)
def _nobody_lives():
    Told.living.clear()


def test_two_files_in_turn():
    old, new = Told(100.0), Told(150.0)
    found = measure.verify(old, new, {"old": 0, "new": 2}, Missing("not-measured"), lambda pair, pairs: None)
    assert found.done
    assert found.comparison.answer is Answer.FASTER
    assert found.comparison.lower > 1.3
    assert len(old.asked) == len(new.asked) == measure.PAIRS
    assert new.asked[0].warm_steps > old.asked[0].warm_steps  # the batches that its workers had ready are gone first
    assert all(segment.knobs == {} and segment.mode is Mode.REAL for segment in old.asked + new.asked)
    slower = measure.verify(Told(150.0), Told(100.0), {"old": 0, "new": 0}, Missing("x"), lambda pair, pairs: None)
    assert slower.comparison.answer is Answer.SLOWER
    assert not Told.living
    failed = measure.verify(Told(1.0), Told(1.0, Status.CRASH), {"old": 0, "new": 0}, Missing("x"), lambda a, b: None)
    assert (failed.done, failed.code) == (False, "new-fails")


def finished(**profile):
    decisions = [Decision(knob="workers", value="4", verdict=Verdict.KEPT, code="faster", numerics=Numerics.EXACT, ratio=1.5)]
    none = Missing("not-measured")
    return Finished(
        ending=Ending.TUNED, profile=profile, decisions=decisions, speedup=1.5, lower=1.4, upper=1.6, baseline=1.0, final=1.5,
        ceilings=Ceilings(), bound_before=None, bound_after=None, noise=none, drift=0.0, throttled=False, spent_s=1.0,
        segments=1,
    )  # fmt: skip


def test_knobs_become_keys_and_the_rest_stays_in_the_profile():
    end = finished(workers="4", precision="bf16", pin_memory="on", tf32="on", compile="reduce-overhead", batch_size="64")
    wishes = {wish.key: wish for wish in measure.wishes_of(end)}
    assert {key: wish.value for key, wish in wishes.items()} == {
        "use_amp": "bf16", "compile_model": "reduce-overhead", "batch_size": 64, "num_workers": 4, "pin_memory": True,
    }  # fmt: skip
    assert wishes["num_workers"].params == {"gain": 50.0}
    changes = [
        _change("num_workers", State.CHANGED, 4),
        _change("use_amp", State.ALREADY, True),
        _change("pin_memory", State.LEFT),
    ]
    assert measure.remaining(end.profile, changes) == {
        "precision": "bf16", "pin_memory": "on", "tf32": "on", "compile": "reduce-overhead", "batch_size": "64",
    }  # fmt: skip


def _change(key, state, after=None):
    return Change(key=key, path=key, state=state, after=after, how=How.MEASURED, code="kept", numerics=Numerics.EXACT)


def test_the_scripts_own_sources_are_looked_into_and_nobody_elses(tmp_path):
    for name, text in (
        ("main.py", "a"),
        ("data/loading.py", "b"),
        (".venv/x.py", "c"),
        ("lib/site-packages/y.py", "d"),
        ("z.txt", "e"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert set(measure.sources_of(tmp_path / "main.py")) == {"a", "b"}
    assert measure.sources_of(None) == []


def test_a_key_without_effect_is_not_called_read():
    changes = [
        _change("use_amp", State.CHANGED, True),
        _change("num_workers", State.CHANGED, 4),
        _change("pin_memory", State.INSERTED, True),
    ]
    ready = {"workers": 4, "autocast": False, "pin_memory": True}
    assert measure.unread(ready, changes) == ["use_amp"]
    assert measure.unread({**ready, "autocast": True, "workers": 0}, changes) == ["num_workers"]
    assert measure.unread({"workers": 0, "autocast": False}, [_change("use_amp", State.LEFT)]) == []


def test_exploring_goes_up_and_down_and_stops_at_what_fails():
    configuration = parsed(Path("x.yaml"), "model:\n  base_channels: 32  # width\nlr: 1\n")
    entry = explored(configuration, "base_channels", {})
    texts = explore.values_of(configuration, entry, ["64", "96"])
    assert texts["32"] == configuration.text
    assert texts["64"] == "model:\n  base_channels: 64  # width\nlr: 1\n"
    arms = {"32": Told(100.0), "64": Told(50.0), "96": Told(0.0, Status.OOM)}
    seen = []
    readings = explore.measure(list(texts), "32", arms.__getitem__, seen.append)
    assert seen == ["32", "64", "96", "64", "32"]
    assert [(one.value, one.current, one.status, len(one.rates)) for one in readings] == [
        ("32", True, "ok", 2), ("64", False, "ok", 2), ("96", False, "oom", 0),
    ]  # fmt: skip
    assert readings[0].memory_peak == 1 << 30
    assert explore.asked("a=1, 2,,2") == ("a", ["1", "2"])


# -- the end of a search, with a real file and arms that are told ----------------------------------------------------------


class Learning(Told):
    """Trials that also train: the losses of each seed."""

    said = "Traceback\nValueError: no such key\n"

    def __init__(self, rate, loss=1.0, **more):
        super().__init__(rate, **more)
        self.loss = loss

    def curve(self, knobs, steps, seed, draws):
        assert (knobs, draws) == ({}, 0)
        return Training(losses=[self.loss * (2.0 - step / steps + 0.001 * (seed + step % 3)) for step in range(steps)])


READS = "cfg['use_amp'], cfg['num_workers'], cfg['pin_memory']"


@pytest.fixture
def concluded(tmp_path, script, monkeypatch):
    """What becomes of a file after a search that kept bf16 and four workers."""
    source = tmp_path / "x_config.yaml"
    source.write_text("# mine\nnum_workers: 0\nuse_amp: off  # later\nlr: 1e-3\n", encoding="utf-8")
    path = script(READS, "main.py")
    monkeypatch.chdir(tmp_path)

    def conclude(old, new, **more):
        from flatout.base.words import Words
        from flatout.cli import tune
        from flatout.cli.config_task import ConfigTask

        (tmp_path / "x_gpu_optimized.yaml").unlink(missing_ok=True)
        (tmp_path / "flatout.toml").unlink(missing_ok=True)
        asked = {"config": "x_config.yaml", "output": None, "force": False, "key": (), "no_insert": False, "preset": None,
                 "card": None, "explore": (), "python": None, "no_sandbox": True, "no_parity": False, "as_json": False,
                 "dry_run": False, "gpu_memory_fraction": None, **more}  # fmt: skip
        said = io.StringIO()
        task = ConfigTask(["main.py", "--config", "{config}"], asked, tune.Screen(said, Words("en")))
        arms = {"x_config.yaml": old}

        @contextlib.contextmanager
        def told(place):
            yield lambda path: arms.get(path.name, new)

        monkeypatch.setattr(task, "_arms", told)
        end = finished(workers="4", precision="bf16", tf32="on")
        code = task.conclude(end, {"workers": 0}, tmp_path, ["python", str(path)], asked, task.screen)
        target, profile = tmp_path / "x_gpu_optimized.yaml", tmp_path / "flatout.toml"
        texts = [one.read_text(encoding="utf-8") if one.exists() else None for one in (target, profile)]
        assert not [one for one in tmp_path.iterdir() if one.name.startswith(".x")], "a temporary file was left"
        return code, *texts, said.getvalue()

    return conclude


GOOD = {"workers": 4, "autocast": True}


def test_a_file_that_is_faster_is_written_and_only_the_rest_goes_to_the_profile(concluded, tmp_path):
    code, text, profile, said = concluded(Learning(100.0), Learning(200.0, ready=GOOD))
    assert (code, text) == (0, "# mine\nnum_workers: 4\nuse_amp: on  # later\nlr: 1e-3\n")
    assert "tf32" in profile
    assert "workers" not in profile.split("[provenance]")[0]
    assert "ratio" not in profile  # what was measured is the whole, and part of it stands in the file
    assert "2.0" in said
    record = records.read(tmp_path / "config.json", ConfigOutcome)
    assert record.search.profile == {"workers": "4", "precision": "bf16", "tf32": "on"}
    assert [(change.before, change.after) for change in record.changes] == [("off", "on"), (0, 4)]
    assert record.verification.comparison.answer is Answer.FASTER
    assert record.verification.parity is not None


def test_a_key_that_is_not_read_stays_as_it_was_and_its_knob_in_the_profile(concluded):
    code, text, profile, said = concluded(Learning(100.0), Learning(200.0, ready={"workers": 4, "autocast": False}))
    assert (code, text) == (0, "# mine\nnum_workers: 4\nuse_amp: off  # later\nlr: 1e-3\n")
    assert 'precision = "bf16"' in profile
    assert "does not seem to read use_amp" in said


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (Learning(200.0), Learning(100.0, ready=GOOD), "is slower"),
        (Learning(100.0), Learning(200.0, loss=1.5, ready=GOOD), "does not learn as well"),
        (Learning(100.0), Learning(200.0, status=Status.CRASH, ready=GOOD), "fails with the new configuration"),
    ],
)
def test_a_file_that_is_worse_is_not_written_and_nothing_is_lost(old, new, words, concluded):
    code, text, profile, said = concluded(old, new)
    assert (code, text) == (1, None)
    assert words in said
    assert all(name in profile for name in ("tf32", "precision", "workers"))
