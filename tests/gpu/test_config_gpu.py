"""Configurations on a real GPU: `pytest -m gpu`."""

import json
import shutil
import sys

import pytest

torch = pytest.importorskip("torch")

from conftest import EXAMPLES

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.fixture
def config(tmp_path):
    return shutil.copy(EXAMPLES / "configs" / "lightweight_config.yaml", tmp_path)


def test_the_card_of_this_machine_decides(config, flatout):
    ended = flatout("tune", "--config", config, "--json")
    assert ended.returncode == 0, ended.stderr
    record = json.loads(ended.stdout)
    assert record["ground"]["source"] == "nvml"
    assert record["ground"]["card"] == torch.cuda.get_device_name()
    rows = {row["key"]: row for row in record["changes"]}
    assert rows["use_amp"]["after"] is (torch.cuda.get_device_capability() >= (7, 0))
    assert rows["pin_memory"]["state"] == "inserted"


def test_the_restoration_specimens_file_is_faster_as_a_file(config, flatout):
    ended = flatout(
        "tune", "--config", config, "--budget", "120s", "--json", "--",
        sys.executable, EXAMPLES / "restoration.py", "--config", "{config}", timeout=900,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    print(ended.stderr)
    record = json.loads(ended.stdout)
    found = record["verification"]["comparison"]
    assert found["answer"] == "faster"
    assert found["lower"] > 2.0  # without workers it is bound by its input
    (row,) = (row for row in record["changes"] if row["key"] == "num_workers")
    assert row["after"] >= 4


def test_a_larger_model_is_slower_and_takes_more_memory(config, flatout):
    ended = flatout(
        "tune", "--config", config, "--explore", "base_channels=32,128", "--json", "--",
        sys.executable, EXAMPLES / "restoration.py", "--config", "{config}", timeout=600,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    small, large = json.loads(ended.stdout)["explored"][0]["readings"]
    assert large["memory_peak"] > 2 * small["memory_peak"]
