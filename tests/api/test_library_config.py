"""Where a configuration comes from, what it may say, and how it is refused: in a sentence that names the argument."""

import copy
import dataclasses
import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flatout import BatchSizeOptimizer, TrainingAccelerator, auto_optimize_config
from flatout.api.adapters import loader_arguments
from flatout.api.config_source import read
from flatout.api.errors import ConfigurationError
from flatout.api.refusals import UnknownNameError
from flatout.api.training_config import TrainingConfig
from flatout.base.errors import FlatoutError

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "examples" / "configs"


def test_the_three_shapes_of_the_documents():
    flat = read(CONFIGS / "lightweight_config.yaml")
    assert (flat.batch_size, flat.num_workers, flat.precision, flat.lr) == (16, 0, "no", 1e-4)
    assert flat.model == {"base_channels": 32, "num_blocks": 4, "patch_size": 128}
    nested = read(str(CONFIGS / "training_config.yaml"))
    assert (nested.batch_size, nested.lr, nested.betas, nested.weight_decay) == (64, 3e-4, (0.9, 0.999), 0.05)
    plain = read(CONFIGS / "behavior.json")
    assert (plain.device_id, plain.pin_memory, plain.compile_model, plain.batch_size) == (0, False, "no", 32)


@pytest.mark.parametrize(
    ("written", "means"),
    [(True, "auto"), (False, "no"), ("bf16", "bf16"), ("fp16", "fp16"), ("no", "no"), ("auto", "auto"), ("BFloat16", "bf16")],
)
@pytest.mark.parametrize("key", ["use_amp", "use_mixed_precision", "precision"])
def test_precision_by_booleans_and_strings(key, written, means):
    assert read({key: written}).precision == means


def test_a_profile(tmp_path):
    path = tmp_path / "flatout.toml"
    path.write_text('[knobs]\nprecision = "bf16"\nworkers = 4\npin_memory = true\ncompile = "default"\ngc_policy = true\n')
    config = read(path)
    assert (config.precision, config.num_workers, config.pin_memory, config.compile_model) == ("bf16", 4, True, "default")
    assert config.knobs == {"gc_policy": "on"}


def test_others():
    given = TrainingConfig(lr=0.1)
    assert read(given) is given
    assert read("auto").precision == "auto"
    assert TrainingConfig.from_dict({"lr": "1e-4"}).lr == 1e-4  # as PyYAML reads it


@pytest.mark.parametrize(
    ("source", "kind", "says"),
    [
        (7, ConfigurationError, "config must be .* but it is a int"),
        ({"bach_size": 4}, UnknownNameError, "bach_size.*batch_size"),
        ({"batch_size": "many"}, ConfigurationError, "batch_size cannot be 'many'"),
        ({"batch_size": True}, ConfigurationError, "batch_size cannot be True"),
        ({"batch_size": 0}, ConfigurationError, "batch_size"),
        ({"lr": float("nan")}, ConfigurationError, "lr cannot be nan"),
        ({"use_amp": "b16"}, ConfigurationError, "use_amp cannot be 'b16'"),
        ({"use_amp": True, "precision": "fp16"}, ConfigurationError, "contradict"),
        ({"gpu_memory_fraction": 0}, ConfigurationError, "gpu_memory_fraction"),
        ({"betas": [0.9]}, ConfigurationError, "betas"),
        ({"distributed": "dp"}, ConfigurationError, "distributed"),
        ({"device_id": "gpu0"}, ConfigurationError, "device_id"),
        ({"knobs": {"gc_policy": "sometimes"}}, ConfigurationError, "gc_policy"),
        ("no-such.yaml", ConfigurationError, "cannot be read"),
        ("config.ini", ConfigurationError, "a profile"),
    ],
)
def test_what_cannot_be_meant(source, kind, says):
    with pytest.raises(kind, match=says):
        read(source)


@pytest.mark.parametrize(
    ("name", "text", "kind", "says"),
    [
        ("a.yaml", "batch_size: [1", ConfigurationError, "cannot be parsed"),
        ("a.json", '{"batch_size": 3', ConfigurationError, "cannot be parsed"),
        ("a.yaml", "- 1\n- 2\n", ConfigurationError, "a table"),
        ("a.yaml", "train:\n  batchsize: 3\n", UnknownNameError, "batchsize.*batch_size"),
        ("a.toml", "[knobs]\nworkerz = 3\n", UnknownNameError, "workerz.*workers"),
        ("a.toml", "[fingerprint]\ntorhc = '2.9'\n", UnknownNameError, "torhc.*torch"),
        ("a.toml", "workers = 3\n", UnknownNameError, "workers.*knobs.workers"),
        ("a.toml", "[knobs]\nworkers = 'many'\n", ConfigurationError, "workers cannot be many"),
    ],
)
def test_files_that_cannot_be_meant(tmp_path, name, text, kind, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(kind, match=says):
        read(tmp_path / name)


def config_of(**values):
    return TrainingConfig(**values)


@pytest.mark.parametrize(
    ("call", "slip", "near"),
    [
        (lambda path: read({"precison": "bf16"}), "precison", "precision"),
        (lambda path: config_of(precison="bf16"), "precison", "precision"),
        (lambda path: TrainingConfig.from_dict({"precison": "bf16"}), "precison", "precision"),
        (lambda path: read({"knobs": {"gc_polcy": "on"}}), "gc_polcy", "gc_policy"),
        (lambda path: TrainingAccelerator({"use_gpu": False, "use_amq": True}), "use_amq", "use_amp"),
        (lambda path: TrainingAccelerator().fit(None, None, None, None, validaton=None), "validaton", "validation"),
        (lambda path: auto_optimize_config(path, keys={"bach_size": "bs"}), "bach_size", "batch_size"),
        (lambda path: auto_optimize_config(path, preset="balansed"), "balansed", "balanced"),
        (lambda path: auto_optimize_config(path, card="RTX 40500"), "RTX 40500", "RTX 4050"),
        (lambda path: loader_arguments({"wokers": 4}), "wokers", "workers"),
        (lambda path: BatchSizeOptimizer(torch.nn.Linear(2, 2), {"use_ampp": True}), "use_ampp", "use_amp"),
    ],
)
def test_an_unknown_key_is_the_same_error_everywhere(tmp_path, call, slip, near):
    path = tmp_path / "config.yaml"
    path.write_text("bs: 4\nlr: 0.1\n")
    with pytest.raises(UnknownNameError) as caught:
        call(path)
    assert type(caught.value) is UnknownNameError
    assert isinstance(caught.value, LookupError | FlatoutError)
    assert slip in str(caught.value)
    assert near in str(caught.value)
    assert sorted(path.parent.iterdir()) == [path]  # nothing was written


def test_the_signature_is_still_what_editors_show():
    names = list(inspect.signature(TrainingConfig).parameters)
    assert names == [each.name for each in dataclasses.fields(TrainingConfig)]
    assert copy.deepcopy(TrainingConfig(lr=0.1)) == pickle.loads(pickle.dumps(TrainingConfig(lr=0.1)))


def test_what_a_file_says_about_other_things_is_the_users_own(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"experiment": "a1", "model": {"depth": 3}, "batch_size": 4}))
    config = read(path)
    assert config.batch_size == 4
    assert config.model == {"experiment": "a1", "depth": 3}


LOOK = """
import sys, flatout
assert "torch" not in sys.modules
flatout.TrainingConfig(), flatout.AcceleratedConfig
assert "torch" not in sys.modules, "the configuration needs no torch"
try:
    flatout.TrainingAccelerator
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("torch", "says"),
    [
        ("__version__ = '2.3.1+cu118'", "needs PyTorch 2.4 or newer, but this is 2.3.1"),
        ("raise ImportError('no')", "PyTorch cannot be imported"),
    ],
)
def test_an_old_torch_or_none_is_one_sentence(tmp_path, torch, says):
    """And importing flatout imports none at all."""
    (tmp_path / "torch.py").write_text(torch)
    (tmp_path / "look.py").write_text(LOOK)
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "look.py")], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert says in ended.stdout


def test_a_dictionary_and_a_file_with_the_same_keys_are_read_the_same(tmp_path):
    """`epochs` is the user's own; it is no misspelt name of ours."""
    tree = {"epochs": 10, "batch_size": 8}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(tree), encoding="utf-8")
    assert read(tree) == read(path)
    for source in ({"batch_sise": 8}, _file(tmp_path, {"batch_sise": 8})):
        with pytest.raises(UnknownNameError, match="did you mean batch_size"):
            read(source)


def _file(folder, tree):
    path = folder / "misspelt.json"
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path
