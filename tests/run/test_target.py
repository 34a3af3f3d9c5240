"""What was typed: a file or a module, whatever the script's own arguments look like."""

from pathlib import Path

import pytest

from flatout.launch import target


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (["train.py", "--epochs", "3"], "train.py"),
        (["-m", "pack.train", "--list", "files.py"], "-m pack.train"),
        (["-u", "src/train.py"], "src/train.py"),
        (["src/train.py", "-m", "resnet50"], "src/train.py"),  # a script's own -m
        (["launch.sh", "a", "b"], "launch.sh"),
        (["--nproc-per-node", "2", "-m", "pack.train"], "-m pack.train"),
        ([], ""),
    ],
)
def test_what_flatout_run_is_given_to_run_the_same(words, typed):
    assert target.as_typed(words) == typed


def test_a_profile_lies_beside_the_script_also_where_that_has_an_m_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("")
    assert target.home(["src/train.py"]) == target.home(["src/train.py", "-m", "resnet50"]) == Path("src")
    assert target.home(["-m", "src.train"]) == Path()
