"""The script's own argument for its batch: found in its words, its source or its help, and put on its command line."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.base.errors import UsageError
from flatout.base.records import Missing
from flatout.launch import own_argument
from flatout.launch.own_argument import BATCH, LENGTH, RATE, Argument, Searched, find, put, value_in
from flatout.machine.script_options import helped
from flatout.tune.batch.command_line import RateRule, batch_line

HEAD = "import argparse\nparser = argparse.ArgumentParser()\n"


def found(script, source, *arguments, names=BATCH, **more):
    path = script(HEAD + source + "\nargs = parser.parse_args()\n")
    return find(Searched(words=[str(path), *arguments], names=names, **more))


@pytest.mark.parametrize(
    ("declared", "flag", "value"),
    [
        ('"-b", "--batch-size", type=int, default=16', "--batch-size", "16"),
        ('"--batch_size", type=int', "--batch_size", None),
        ('"--eval-batch-size", default=4), parser.add_argument("--train-batch-size", default=8', "--train-batch-size", "8"),
        ('"--bs", default=2', "--bs", "2"),
        ('"--per_device_train_batch_size", default=8', "--per_device_train_batch_size", "8"),
        ('"-b", default=3', "-b", "3"),
        ('"--data.batch_size", default=5', "--data.batch_size", "5"),
    ],
)
def test_in_the_source(declared, flag, value, script):
    told = found(script, f"parser.add_argument({declared})")
    assert (told.flag, told.value, told.given) == (flag, value, False)


@pytest.mark.parametrize("declared", ['"--num-batches", default=3', '"--val-batch-size", default=3', '"--batch-norm"'])
def test_what_is_something_else(declared, script):
    assert isinstance(found(script, f"parser.add_argument({declared})"), Missing)


def test_the_learning_rate_is_not_its_schedule(script):
    source = 'parser.add_argument("--lr-decay", default=0.1); parser.add_argument("--learning-rate", default=1e-3)'
    told = found(script, source, names=RATE)
    assert (told.flag, told.value) == ("--learning-rate", "0.001")


def test_what_stands_on_the_command_line_counts(script):
    source = 'parser.add_argument("-b", "--batch-size", type=int, default=16)'
    for words in (["-b", "64"], ["-b64"], ["--batch-size=64"], ["--batch-size", "8", "-b", "64"]):
        assert found(script, source, *words).value == "64"
    told = find(Searched(words=["-m", "somewhere.train", "data.batch_size=32"], names=BATCH))
    assert (told.flag, told.value) == ("data.batch_size", "32")
    assert found(script, source, asked="--other").flag == "--other"


def test_options_kept_in_a_file_beside_the_script(script, tmp_path):
    (tmp_path / "options.py").write_text(HEAD + 'parser.add_argument("--batch-size", default=12)\n', encoding="utf-8")
    path = script("from options import parser\nargs = parser.parse_args()\n")
    assert find(Searched(words=[str(path)], names=BATCH)).value == "12"


def test_the_help_of_a_script_whose_options_are_made_elsewhere(script):
    """A real process: the names come from a loop, which no reading shows."""
    path = script(
        HEAD + 'for name in ("batch", "image"):\n    parser.add_argument(f"--{name}-size", type=int, default=24,'
        ' help="(default: %(default)s)")\nparser.parse_args()\n'
    )
    command = [sys.executable, str(path)]
    told = find(Searched(words=[str(path)], names=BATCH, ask_help=lambda: own_argument.help_text(command, {})))
    assert (told.flag, told.value, told.source) == ("--batch-size", "24", "help")


def test_a_script_without_a_command_line_is_not_asked(script):
    def never():
        raise AssertionError("it would begin to train")

    path = script("import torch\n")
    assert isinstance(find(Searched(words=[str(path)], names=BATCH, ask_help=never)), Missing)


def test_help_texts_of_other_makers():
    click = helped("Options:\n  -b, --batch-size INTEGER  Batch.  [default: 7]\n  --lr FLOAT\n")
    assert [(option.names[0], option.default) for option in click] == [("--batch-size", "7"), ("--lr", None)]


@given(st.lists(st.sampled_from(["--epochs", "3", "-v", "x=1", "data"]), max_size=5), st.integers(1, 9999))
def test_what_is_put_on_is_what_is_read(others, size):
    argument = Argument(flag="--batch-size", names=("--batch-size", "-b"), value=None)
    for given_as in ([], ["-b", "8"], ["--batch-size=8"], ["-b8"]):
        line = put(["python", "train.py", *others, *given_as], argument, str(size))
        assert value_in(line, argument.names) == str(size)
        assert line[2 : 2 + len(others)] == others
    assert put(["python", "t.py", "--", "x"], argument, "4")[2:] == ["--batch-size", "4", "--", "x"]


def test_rules_for_the_learning_rate():
    batch = Argument(flag="--batch-size", names=("--batch-size",), value="16")
    rate = Argument(flag="--lr", names=("--lr",), value="0.01")
    line = ["python", "t.py"]
    assert batch_line(batch, rate, RateRule.LINEAR, None).command(line, 64)[2:] == ["--batch-size", "64", "--lr", "0.04"]
    assert batch_line(batch, rate, RateRule.SQRT, None).arguments(64) == {"--batch-size": "64", "--lr": "0.02"}
    assert batch_line(batch, rate, RateRule.KEEP, None).arguments(64) == {"--batch-size": "64"}
    unknown = Argument(flag="--batch-size", names=("--batch-size",), value=None)
    assert batch_line(unknown, None, RateRule.KEEP, 32).own == 32
    for arguments in (
        (unknown, None, RateRule.KEEP, None),
        (Missing("x"), None, RateRule.KEEP, 8),
        (batch, Missing("x"), RateRule.SQRT, 8),
    ):
        with pytest.raises(UsageError):
            batch_line(*arguments)


@pytest.mark.parametrize(
    ("declared", "flag", "value"),
    [
        ('"--steps", type=int, default=200', "--steps", "200"),
        ('"--warmup_steps", default=10), parser.add_argument("--max_iters", default=6000', "--max_iters", "6000"),
        ('"--save-steps", default=10), parser.add_argument("--max-train-steps", default=50', "--max-train-steps", "50"),
        ('"--num_iterations", default=7', "--num_iterations", "7"),
    ],
)
def test_how_long_it_trains(declared, flag, value, script):
    told = found(script, f"parser.add_argument({declared})", names=LENGTH)
    assert (told.flag, told.value) == (flag, value)


@pytest.mark.parametrize(
    "name", ["--warmup-steps", "--eval-steps", "--gradient-accumulation-steps", "--log-every-steps", "--epochs"]
)
def test_what_is_no_length(name, script):
    assert isinstance(found(script, f'parser.add_argument("{name}", default=3)', names=LENGTH), Missing)
