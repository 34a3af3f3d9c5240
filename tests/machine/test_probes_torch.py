"""torch asked in a child: whole, absent, broken, crashing, hanging or talkative, there are facts in the end."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
import venv

import pytest
from probe_worlds import world

from flatout.base.records import Missing
from flatout.machine import probe_host as worlds
from flatout.machine import torch_child
from flatout.machine.probe_host import Output

LIKE_TORCH = """
import types
__version__ = "2.4.1+cu121"
version = types.SimpleNamespace(cuda="12.1", hip=None)
_C = types.SimpleNamespace(_cuda_getArchFlags=lambda: "sm_80 sm_90 compute_90")
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: 90100))
def unavailable():
    import warnings
    warnings.warn("CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was tried")
    return False
def init():
    raise RuntimeError("Unexpected error from cudaGetDeviceCount()")
cuda = types.SimpleNamespace(is_available=unavailable, device_count=lambda: 0, init=init)
"""
SEGFAULT = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"


@pytest.fixture
def with_torch(tmp_path):
    """A package of that name, first on the path of a child of this interpreter."""

    def ask(body, limit_s=30.0, **environ):
        package = tmp_path / "torch"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text(body, encoding="utf-8")
        here = worlds.live({**os.environ, "PYTHONPATH": str(tmp_path), **environ})
        return torch_child.ask(here, sys.executable, limit_s)

    return ask


def test_the_real_torch():
    pytest.importorskip("torch")
    import torch

    asked = torch_child.ask(worlds.live(), sys.executable)
    assert (asked.torch.status, asked.torch.version) == ("ok", torch.__version__)
    assert asked.torch.cuda == (torch.version.cuda or "none")
    assert asked.torch.available == torch.cuda.is_available()
    assert asked.torch.path == torch.__file__
    assert isinstance(asked.torch.installer, str)
    assert asked.torch.others == []
    assert (asked.python.version, asked.python.bits) == (sys.version.split()[0], 64)
    if not torch.cuda.is_available():
        assert asked.torch.kernel == Missing("no-device")
    else:
        assert asked.torch.kernel == "ok"


def test_a_build_that_finds_no_device(with_torch):
    asked = with_torch(LIKE_TORCH)
    assert (asked.torch.status, asked.torch.version, asked.torch.cuda, asked.torch.hip) == ("ok", "2.4.1+cu121", "12.1", "none")
    assert asked.torch.arch_list == ["sm_80", "sm_90", "compute_90"]
    assert (asked.torch.available, asked.torch.device_count, asked.torch.devices) == (False, 0, [])
    assert asked.torch.error_code == 804
    assert len(asked.torch.warnings) == 2
    assert asked.torch.cudnn == "9.1.0"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("The NVIDIA driver on your system is too old (found version 11040).", 35),
        ("CUDA unknown error - this may be due to an incorrectly set up environment", 999),
        ("No CUDA GPUs are available", 100),
    ],
)
def test_sentences_without_a_number(with_torch, text, code):
    body = LIKE_TORCH.replace("Unexpected error from cudaGetDeviceCount()", text).replace("Error 804:", "")
    assert with_torch(body).torch.error_code == code


def test_no_torch(tmp_path):
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    asked = torch_child.ask(
        worlds.live({name: value for name, value in os.environ.items() if name != "PYTHONPATH"}), str(python)
    )
    assert asked.torch.status == "not-installed"
    assert asked.torch.version == Missing("not-installed", "torch")
    assert asked.python.environment == "venv"


def test_import_error(with_torch):
    asked = with_torch("raise ImportError('libcudnn.so.9: cannot open shared object file: No such file or directory')\n")
    assert asked.torch.status == "import-failed"
    assert asked.torch.error.startswith("ImportError: libcudnn.so.9")
    assert asked.cuda.missing_libraries == ["libcudnn.so.9"]
    assert asked.python.version == sys.version.split()[0]


def test_a_folder_that_is_not_torch(with_torch):
    asked = with_torch("")
    assert asked.torch.status == "import-failed"
    assert "AttributeError" in asked.torch.error


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_segmentation_fault_on_import(with_torch):
    asked = with_torch(SEGFAULT)
    assert (asked.torch.status, asked.torch.error) == ("crashed", "SIGSEGV")
    assert asked.torch.version.reason == "torch-not-imported"
    assert asked.python.version == sys.version.split()[0]


def test_an_import_that_ends_the_process(with_torch):
    assert with_torch("import os\nos._exit(7)\n").torch.error == "exit code 7"
    assert with_torch("raise SystemExit(0)\n").torch.status == "import-failed"


@pytest.mark.skipif(os.name == "nt", reason="process groups")
def test_an_import_that_hangs(with_torch, tmp_path):
    mark = tmp_path / "alive"
    grandchild = f"import time\nwhile True: open({str(mark)!r}, 'w').close(); time.sleep(0.05)"
    body = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {grandchild!r}])\ntime.sleep(60)\n"
    began = time.monotonic()
    asked = with_torch(body, limit_s=2.0)
    assert time.monotonic() - began < 8
    assert asked.torch.status == "timeout"
    assert asked.python.version == sys.version.split()[0]
    time.sleep(0.3)
    mark.unlink(missing_ok=True)
    time.sleep(0.3)
    assert not mark.exists()  # what it had started is gone too


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_death_after_the_import_keeps_what_was_known(with_torch):
    died_at_devices = with_torch(LIKE_TORCH.replace("    import warnings\n", "    import os; os.kill(os.getpid(), 11)\n"))
    assert (died_at_devices.torch.status, died_at_devices.torch.error) == ("crashed", "devices: SIGSEGV")
    assert died_at_devices.torch.version == "2.4.1+cu121"
    kernel = (
        LIKE_TORCH + "cuda.is_available = lambda: True\ndef arange(*a, **k):\n    import time; time.sleep(60)\nfloat32 = None\n"
    )
    hung = with_torch(kernel, limit_s=3.0)
    assert (hung.torch.status, hung.torch.available, hung.torch.kernel) == ("ok", True, "timeout: time limit")


def test_garbage_around_the_answer(with_torch, tmp_path):
    noise = "import os, sys\nos.write(1, bytes(range(256)))\nprint('noise', flush=True)\n"
    (tmp_path / "sitecustomize.py").write_text(noise + "print('flatout-torch-facts {broken')\n", encoding="utf-8")
    asked = with_torch(noise + LIKE_TORCH + noise)
    assert (asked.torch.status, asked.torch.version) == ("ok", "2.4.1+cu121")


def test_several_torches_on_the_path(with_torch, tmp_path):
    for place, version in ((tmp_path, "0.0.1"), (tmp_path / "second", "2.7.0")):
        (place / f"torch-{version}.dist-info").mkdir(parents=True)
        (place / f"torch-{version}.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        (place / f"torch-{version}.dist-info/INSTALLER").write_text("uv\n")
    (tmp_path / "second/torch").mkdir()
    (tmp_path / "second/torch/version.py").write_text("__version__ = '2.7.0+cu128'\n")
    asked = with_torch(LIKE_TORCH, PYTHONPATH=f"{tmp_path}{os.pathsep}{tmp_path / 'second'}")
    assert asked.torch.installer == "uv"
    assert f"2.7.0+cu128 in {tmp_path / 'second'}" in asked.torch.others
    assert not any(str(other).startswith("0.0.1") for other in asked.torch.others)


def test_no_interpreter_and_one_that_fails(tmp_path):
    gone = torch_child.ask(world(tmp_path), "/not/there/python")
    assert gone.torch.status.reason == gone.python.version.reason == "not-found"
    broken = torch_child.ask(
        world(tmp_path, {"/old/python": Output(code=1, stderr="SyntaxError: invalid syntax")}), "/old/python"
    )
    assert broken.torch.status == Missing("interpreter-failed", "SyntaxError: invalid syntax")
    hung = torch_child.ask(world(tmp_path, {"/old/python": Output(code=-9, timed_out=True)}), "/old/python")
    assert hung.torch.status.reason == "interpreter-failed"


def answered(**known):
    return {"/p": "flatout-torch-facts " + json.dumps({"stage": "end", "installed": True, **known})}


def test_a_working_card(tmp_path):
    known = {
        "cuda": {"init_code": 0, "device_count": 1, "driver_version": 13000},
        "imported": True,
        "version": "2.11.0+cu130",
        "built_for": {"cuda": "13.0", "hip": None},
        "arch_list": ["sm_90"],
        "available": True,
        "device_count": 1,
        "devices": ["NVIDIA H200"],
        "capabilities": ["9.0"],
        "warnings": [],
        "cudnn": 91900,
        "kernel": "ok",
        "packages": {"triton": "3.6.0", "flash-attn": "2.8.0"},
        "libraries": [["cudnn", "/p/nvidia/cudnn/lib/libcudnn.so.9", "9.19.0.56"], ["cublasLt", "/p/libcublasLt.so.13", ""]],
    }
    asked = torch_child.ask(world(tmp_path, answered(**known)), "/p")
    assert (asked.cuda.init_code, asked.cuda.device_count, asked.driver_cuda) == (0, 1, "13.0")
    assert (asked.torch.kernel, asked.torch.cudnn, asked.torch.triton) == ("ok", "9.19.0", "3.6.0")
    assert [(each.name, each.version) for each in asked.torch.extensions] == [("flash-attn", "2.8.0")]
    assert [library.name for library in asked.cuda.loaded] == ["cudnn", "cublaslt"]


@pytest.mark.parametrize(("number", "text"), [(8902, "8.9.2"), (7605, "7.6.5"), (90100, "9.1.0"), (91900, "9.19.0")])
def test_numbers_of_cudnn(number, text):
    assert torch_child.cudnn_version(number) == text


@pytest.mark.parametrize(
    ("error", "libraries"),
    [
        ('OSError: [WinError 126] Error loading "C:\\x\\torch\\lib\\fbgemm.dll" or one of its dependencies.', ["fbgemm.dll"]),
        ("ImportError: dlopen(x): Library not loaded: @rpath/libomp.dylib", ["libomp.dylib"]),
        ("ImportError: undefined symbol: iJIT_NotifyEvent", []),
    ],
)
def test_libraries_that_an_import_misses(error, libraries):
    assert torch_child.missing_libraries(error) == libraries


@pytest.mark.skipif(os.name == "nt", reason="POSIX: a driver's library made by hand")
def test_a_driver_that_does_not_answer(tmp_path):
    slow = {"stage": "driver", "python": {"version": "3.11.1", "bits": 64}}
    here = {"/p": Output(code=-9, timed_out=True, stdout="flatout-torch-facts " + json.dumps(slow) + "\nflatout-torch-f")}
    asked = torch_child.ask(world(tmp_path, here), "/p")
    assert asked.cuda.init_code == Missing("probe-timeout", "cuInit")
    assert asked.torch.status == Missing("interpreter-failed", "driver: time limit")
    assert asked.python.version == "3.11.1"


def test_the_program_stands_alone():
    """It is run by interpreters that flatout itself does not support, without flatout on their path."""
    text = torch_child.script().read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 8))
    assert "from __future__ import annotations" in text
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.split(".")[0] in {*sys.stdlib_module_names, "torch"}, name


def test_the_program_runs_without_site_packages():
    output = subprocess.run([sys.executable, "-I", "-S", torch_child.script()], capture_output=True, text=True, check=True)
    assert torch_child.last_answer(output.stdout)["installed"] is False
