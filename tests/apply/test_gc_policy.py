"""Garbage collected between steps: applied, taken off, and left alone where the script does it itself."""

import gc

import pytest

pytest.importorskip("torch")

from stage import Training, staged


@pytest.fixture(autouse=True)
def as_before():
    yield
    gc.unfreeze()
    gc.enable()


def put_on(training):
    with staged(training) as stage:
        outcome = stage.board.set({"gc_policy": "on"})["gc_policy"]
        training.run()
        return outcome, stage.board.proofs().get("gc_policy")


def test_no_collection_comes_in_the_middle_of_a_step():
    outcome, proof = put_on(Training(epochs=1))
    assert outcome.status == proof.status == "applied"
    assert proof.details["automatic_collections"] == 0
    assert proof.details["steps"] == 12
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_what_python_itself_has_frozen_is_not_the_scripts(monkeypatch):
    """3.12 begins with 375 objects: there the knob was refused to every script."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 375)
    outcome, proof = put_on(Training(epochs=1))
    assert outcome.status == proof.status == "applied"


def test_a_script_that_freezes_or_disables_is_left_alone():
    gc.freeze()
    outcome, _ = put_on(Training(epochs=1))
    assert (outcome.status, outcome.code) == ("already", "script-froze-it")
    gc.unfreeze()
    gc.disable()
    outcome, _ = put_on(Training(epochs=1))
    assert (outcome.status, outcome.code) == ("already", "script-disabled-it")
