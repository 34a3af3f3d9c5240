"""A sample of the matrix of knobs and styles; `python tests/knobs/style_matrix.py` runs all of it."""

import os

import pytest

pytest.importorskip("torch")

from flatout.base.words import Words

if not hasattr(os, "fork"):
    pytest.skip("the scripts run in forks", allow_module_level=True)

import style_matrix
from style_matrix import CASES, GROUPS

SAMPLE = {
    "trainer-class": ["loader", "recorded"],  # augments with all three generators
    "samplers-and-collate": ["bf16"],
    "memmap": ["card"],  # no loader at all
    "wgan-gp": ["compile"],  # gradients of gradients
    "in-a-forked-child": ["card"],
}


@pytest.fixture(scope="module")
def forks():
    with style_matrix.Forks() as forks:
        yield forks


@pytest.mark.parametrize("name", SAMPLE)
def test_an_effect_or_a_reason_and_no_trace(name, forks, tmp_path):
    plain = style_matrix.run(forks, name, tmp_path / "plain")
    assert plain.code == CASES[name].returncode, plain.stderr
    for group in SAMPLE[name]:
        ours = style_matrix.run(forks, name, tmp_path / group, GROUPS[group])
        assert style_matrix.wrongs(plain, ours, Words("en")) == []
        assert len(ours.uses) == len(GROUPS[group])
        assert any(use.came == "applied" or use.code for use in ours.uses)
        for use in ours.uses:
            if group == "recorded":
                assert use.details["replays"] >= 1
            elif (use.name, use.came) == ("compile", "applied"):  # what the compiler met is counted to the run's end
                assert use.details["graphs"] >= 1
                assert use.details.keys() >= {"calls", "graph_breaks", "recompiles", "limit_hits"}


def test_what_is_wrong_is_found(forks, tmp_path):
    """Against the plain run of another seed, as it were: other bytes are seen, and so is a flag that was left."""
    plain = style_matrix.run(forks, "memmap", tmp_path / "plain")
    ours = style_matrix.run(forks, "memmap", tmp_path / "ours", GROUPS["card"])
    assert ours.trace["dressed"] == ours.trace["bare"] == ["clean"]
    name = next(iter(plain.files))
    plain.files[name] += b"."
    plain.trace["flags"]["threads"] += 1
    found = style_matrix.wrongs(plain, ours, Words("en"))
    assert f"other bytes in {name}" in found
    assert any(text.startswith("flags left") for text in found)


def test_every_knob_is_in_a_group():
    from _flatout_agent.knobs.registry import KNOBS

    assert {name for knobs in GROUPS.values() for name in knobs} == set(KNOBS)
