"""Curves that were trained before an interruption are read again; damage costs a training, and nothing else."""

import math

from flatout.measure.one_batch import Look, Training
from flatout.tune.confirmation.kept_loss_curves import NAME, Curves

LOOK = Look(begun=3, ended=4, norms=[1.0, None], sample=[[0.5, -0.5], []])


def losses(*values):
    return Training(losses=list(values))


MINE = ["python", "train.py"]


def test_what_was_trained_is_found_again(tmp_path):
    first = Curves(tmp_path, MINE)
    assert first.find({}, 60, 0) is None
    first.keep({}, 60, 0, losses(2.0, 1.5))
    first.keep({"precision": "bf16", "workers": "4"}, 60, 1000, losses(2.0, math.inf))
    again = Curves(tmp_path, MINE)
    assert again.find({}, 60, 0) == losses(2.0, 1.5)
    assert again.find({"workers": "4", "precision": "bf16"}, 60, 1000) == losses(2.0, math.inf)
    for other in (({}, 60, 1000), ({}, 30, 0), ({"precision": "bf16"}, 60, 1000)):
        assert again.find(*other) is None


def test_what_it_made_of_one_batch_is_kept_with_it(tmp_path):
    training = Training(losses=[2.0], begun=1, looks=[LOOK, None])
    first = Curves(tmp_path, MINE)
    first.keep({}, 60, 0, training, draws=1)
    for read in (first, Curves(tmp_path, MINE)):
        assert read.find({}, 60, 0) is None, "with other random numbers it is another training"
        assert read.find({}, 60, 0, draws=1) == training


def test_what_an_older_version_trained_is_trained_again_where_it_did_not_look(tmp_path):
    line = '{"command": ["python", "train.py"], "knobs": {}, "steps": 60, "seed": 0, "losses": [2.0, 1.5]}'
    odd = line.replace('"seed": 0', '"seed": 1000').replace("]}", '], "looks": [{"begun": "?"}]}')
    (tmp_path / NAME).write_text(f"{line}\n{odd}\n", encoding="ascii")
    read = Curves(tmp_path, MINE)
    assert read.find({}, 60, 0) is None
    assert read.find({}, 60, 1000) == losses(2.0, 1.5)


def test_another_command_is_another_training(tmp_path):
    Curves(tmp_path, [*MINE, "--config", "old.yaml"]).keep({}, 60, 0, losses(2.0))
    assert Curves(tmp_path, [*MINE, "--config", "new.yaml"]).find({}, 60, 0) is None
    assert Curves(tmp_path, [*MINE, "--config", "old.yaml"]).find({}, 60, 0) == losses(2.0)


def test_a_line_cut_short_costs_itself_alone(tmp_path):
    Curves(tmp_path, MINE).keep({}, 60, 0, losses(2.0))
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes() + b'{"knobs": {}, "ste')
    Curves(tmp_path, MINE).keep({}, 60, 1000, losses(3.0))
    path.write_bytes(path.read_bytes() + b"\xff\x00\n[]\n")
    read = Curves(tmp_path, MINE)
    assert (read.find({}, 60, 0), read.find({}, 60, 1000)) == (losses(2.0), losses(3.0))


def test_a_damaged_line_costs_itself_alone(tmp_path):
    Curves(tmp_path, MINE).keep({}, 60, 0, losses(2.0, 1.5))
    rest = '"steps": 60, "seed": 1, "looks": [], "losses": [2.0]'
    knobs = ["[]", "null", "3", '{"a": ' * 5000]
    lines = [f'{{"command": ["python", "train.py"], "knobs": {value}, {rest}}}' for value in knobs]
    lines += [f'{{"command": ["python", "train.py"], "knobs": {{}}, {rest}, "begun": 1e999}}', "[1]", "7"]
    with (tmp_path / NAME).open("a") as file:
        file.write("\n".join(lines) + "\n")
    again = Curves(tmp_path, MINE)
    assert again.find({}, 60, 0) == losses(2.0, 1.5)
    assert again.find({}, 60, 1) is None


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path):
    Curves(tmp_path / "nowhere", MINE).keep({}, 60, 0, losses(2.0))
