"""Watching the cards through the one door to NVML, faked: averages, peaks, and the example that shows them."""

import importlib.util
import sys
from types import SimpleNamespace

import pytest
from fake_nvml import H200, MIB, FakeNvml

from conftest import EXAMPLES
from flatout.base.records import Missing
from flatout.base.words import Words
from flatout.machine.card_load import Load
from flatout.machine.machine_facts import Gpu
from flatout.report import load as report


def gpu(utilisation, used_mib, temperature=50):
    return Gpu(
        index=0, name="RTX 4070", utilisation=utilisation, memory_total_bytes=12288 * MIB,
        memory_free_bytes=Missing("x") if used_mib is None else (12288 - used_mib) * MIB, temperature_c=temperature,
    )  # fmt: skip


def test_averages_and_peaks_of_what_was_told():
    load = Load()
    for utilisation, used in ((90, 1024), (Missing("nvml-not-supported"), None), (70, 3072), (80, 2048)):
        load.add([gpu(utilisation, used)])
    (card,) = load.cards()
    assert (card.looks, card.utilisation, card.utilisation_peak) == (4, 80.0, 90)
    assert (card.used_bytes, card.used_peak_bytes) == (2048 * MIB, 3072 * MIB)
    text = "\n".join(report.summary(card, Words("en")))
    assert "80 % on average, 90 % at most" in text
    assert "3.0 GiB at the peak" in text
    assert "flatout run" not in text
    assert "87 %" in report.look(gpu(87, 1024), Words("zh"))


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("optimize_gpu_example", EXAMPLES / "optimize_gpu.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_watches_and_sums_up(example, monkeypatch, capsys):
    card = {**H200, "UtilizationRates": SimpleNamespace(gpu=20, memory=3)}
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(card))
    assert example.monitor(0.01, Words("en")) == 0
    out = capsys.readouterr().out
    assert "NVIDIA H200" in out
    assert "20 % on average" in out
    assert "flatout run SCRIPT" in out
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(start=12))
    assert example.monitor(0.0, Words("en")) == 1
    assert "no GPU to monitor" in capsys.readouterr().err


def test_the_examples_flags(example, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    started = []
    monkeypatch.setattr(example.subprocess, "run", lambda line: started.append(line) or SimpleNamespace(returncode=0))
    monkeypatch.setattr(sys, "argv", ["optimize_gpu.py", "--config", "a.yaml"])
    assert example.main() == 0
    assert started[-1][1:] == ["-m", "flatout", "tune", "--config", "a.yaml"]
    monkeypatch.setattr(sys, "argv", ["optimize_gpu.py", "--config", "a.yaml", "--benchmark"])
    with pytest.raises(SystemExit) as ended:
        example.main()
    assert ended.value.code == 2
    (tmp_path / "train.py").touch()
    assert example.main() == 0
    assert started[-1][-4:] == [sys.executable, "train.py", "--config", "{config}"]
    monkeypatch.setattr(sys, "argv", ["optimize_gpu.py"])
    with pytest.raises(SystemExit):
        example.main()
    assert "--config or --monitor" in capsys.readouterr().err
