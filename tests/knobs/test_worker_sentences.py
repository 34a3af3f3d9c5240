"""What is said of workers at the ends of epochs, from what the agent saw."""

import re
from pathlib import Path

import pytest

import _flatout_agent
from flatout.base.words import LANGUAGES, Words, catalogue
from flatout.knobs.model import Came, KnobUse
from flatout.report import run_knobs, run_workers


def use(**details):
    details = {"workers_alive": 4, "batches": 160, **details}
    return KnobUse(name="workers", value="4", source="flag", came=Came.APPLIED, details=details, numerics="exact")


def test_the_line_of_the_knob():
    seen = use(turns_kept=9, turns_fresh=1, fresh_because="script-changed-it", evaluation_loaders=1, evaluation_workers=1)
    assert run_knobs.sentence(seen, Words("en")) == (
        "applied (4 workers loaded 160 batches; the workers stayed alive over 9 of 10 epoch boundaries and were "
        "restarted once, because the script changed the dataset, or something that it reads; 1 more worker(s) for the "
        "validation DataLoader; bit-identical results)"
    )
    assert "因为脚本改变了数据集，或改变了它所读的内容；验证用的 DataLoader 另有 1 个工作进程" in run_knobs.sentence(
        seen, Words("zh")
    )


@pytest.mark.parametrize(
    ("kept", "fresh", "said"),
    [
        (1, 0, "the workers stayed alive over the epoch boundary"),
        (10, 0, "the workers stayed alive over all 10 epoch boundaries"),
        (0, 1, "the workers were restarted at the epoch boundary, because a worker process had exited"),
        (0, 3, "the workers were restarted at all 3 epoch boundaries, the last time because a worker process had exited"),
        (
            2,
            3,
            "the workers stayed alive over 2 of 5 epoch boundaries and were restarted 3 times, the last time because a worker "
            "process had exited",
        ),
    ],
)
def test_how_often(kept, fresh, said):
    details = {"turns_kept": kept, "turns_fresh": fresh, "fresh_because": "worker-ended" if fresh else "", "fresh_what": ""}
    assert run_workers.told(details, Words("en")) == [said]


@pytest.mark.parametrize("details", [{}, {"turns_kept": 0, "turns_fresh": 0}, {"turns_kept": "9"}, {"evaluation_loaders": 2}])
def test_nothing_to_say(details):
    assert run_workers.told(details, Words("en")) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_reason_of_the_agents_has_a_sentence(language):
    files = Path(_flatout_agent.__file__).parent.rglob("*.py")
    codes = {code for file in files for code in re.findall(r'Renewal\("([a-z-]+)"', file.read_text(encoding="utf-8"))}
    codes.add("cannot-be-told")
    assert len(codes) == 11
    assert codes == {key.partition(".")[2] for key in catalogue(language) if key.startswith("renewal.")}
    words = Words(language)
    for code in codes:
        (said,) = run_workers.told({"turns_fresh": 2, "fresh_because": code, "fresh_what": "dataset.lines"}, words)
        assert words(f"renewal.{code}", what="dataset.lines") in said
        assert not set("{}?") & set(said)


def test_a_reason_of_a_newer_agent_is_shown_as_it_is():
    (said,) = run_workers.told({"turns_fresh": 1, "fresh_because": "eclipse"}, Words("en"))
    assert said.endswith("because eclipse")
