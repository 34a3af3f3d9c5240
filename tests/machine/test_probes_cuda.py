"""Toolkits, the compiler, libraries on the search path, the environment, room for data, interpreters."""

from __future__ import annotations

import json
import os
import sys

from probe_worlds import world, write

from flatout.base.records import Missing
from flatout.machine import probe_host as worlds
from flatout.machine.probe_host import Output
from flatout.machine.probes import cuda_side, disk, environment, python_side

NVCC = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\n"


def test_toolkits(tmp_path):
    write(tmp_path, "/usr/local/cuda-12.4/version.json", json.dumps({"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}))
    write(tmp_path, "/usr/local/cuda-11.0/version.txt", "CUDA Version 11.0.228")
    write(tmp_path, "/usr/local/cuda-11.0/bin/nvcc")
    write(tmp_path, "/usr/local/cuda-13.0/compat/libcuda.so.1")  # the image brings no toolkit, only these
    assert cuda_side.toolkits(world(tmp_path)) == ["11.0", "12.4"]


def test_toolkits_on_windows(tmp_path):
    here = world(
        tmp_path, environ={"CUDA_PATH": "C:\\x", "CUDA_PATH_V12_4": "C:\\y", "CUDA_PATH_V11_8": "z"}, platform="Windows"
    )
    assert cuda_side.toolkits(here) == ["11.8", "12.4"]


def test_compiler(tmp_path):
    assert cuda_side.nvcc(world(tmp_path, {"nvcc --version": NVCC})) == "13.0"
    assert cuda_side.nvcc(world(tmp_path, {"/opt/cuda/bin/nvcc": NVCC}, {"CUDA_HOME": "/opt/cuda"})) == "13.0"
    assert cuda_side.nvcc(world(tmp_path)).reason == "not-found"
    assert cuda_side.nvcc(world(tmp_path, {"nvcc": "x"})).reason == "unreadable"
    assert cuda_side.nvcc(world(tmp_path, {"nvcc": Output(code=-9, timed_out=True)})).reason == "probe-timeout"


def test_libraries_before_torchs_own(tmp_path):
    write(tmp_path, "/opt/cudnn/lib/libcudnn.so.8.9.2")
    (tmp_path / "opt/cudnn/lib/libcudnn.so.8").symlink_to("libcudnn.so.8.9.2")
    write(tmp_path, "/opt/cudnn/lib/libc.so.6")
    write(tmp_path, "/usr/local/cuda/lib64/stubs/libcuda.so")
    write(tmp_path, "/usr/local/nvidia/lib64/libcuda.so.580.159.04")
    path = ":/usr/local/nvidia/lib64:/opt/cudnn/lib:/not/there:/usr/local/cuda/lib64/stubs"
    cudnn, stub = cuda_side.shadowing(world(tmp_path, environ={"LD_LIBRARY_PATH": path}))
    assert (cudnn.name, cudnn.path, cudnn.version) == ("cudnn", "/opt/cudnn/lib/libcudnn.so.8", "8.9.2")
    assert (stub.name, stub.path) == ("cuda", "/usr/local/cuda/lib64/stubs/libcuda.so")


def test_a_healthy_search_path_shadows_nothing(tmp_path):
    write(tmp_path, "/usr/local/nvidia/lib64/libcuda.so.1")
    write(tmp_path, "/usr/local/nvidia/lib64/libnvidia-ml.so.1")
    assert (
        cuda_side.shadowing(world(tmp_path, environ={"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/local/nvidia/lib"})) == []
    )


def test_shadowing_on_windows(tmp_path):
    folder = "C:\\CUDA\\v11.8\\bin"
    write(tmp_path, f"{folder}/cudnn64_8.dll")
    write(tmp_path, f"{folder}/cublasLt64_11.dll")
    write(tmp_path, f"{folder}/nvcc.exe")
    found = cuda_side.shadowing(world(tmp_path, environ={"PATH": f"C:\\Windows;{folder}"}, platform="Windows"))
    assert [(library.name, library.version) for library in found] == [("cublaslt", "11"), ("cudnn", "8")]


def test_variables_that_matter(tmp_path):
    environ = {
        "CUDA_VISIBLE_DEVICES": "",
        "HOME": "/home/x",
        "OMP_NUM_THREADS": "4",
        "NVIDIA_REQUIRE_CUDA": "x",
        "NCCL_DEBUG": "INFO",
    }
    environ |= {"AWS_SECRET_ACCESS_KEY": "x", "LD_LIBRARY_PATH": "/a" * 2000}
    found = environment.variables(world(tmp_path, environ=environ))
    assert list(found) == ["CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "NCCL_DEBUG", "OMP_NUM_THREADS"]
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    assert len(found["LD_LIBRARY_PATH"]) == environment.LONGEST


def test_room_for_data(tmp_path):
    write(tmp_path, "/dev/shm/x")
    found = disk.application(world(tmp_path))
    assert found.shm_bytes >= found.shm_free_bytes > 0
    assert found.disk_free_bytes > 0
    assert disk.application(world(tmp_path / "nothing")).shm_bytes.reason == "not-found"
    assert disk.application(world(tmp_path, platform="Windows")).shm_bytes == Missing("not-applicable")


def test_our_own_interpreter_needs_no_child(tmp_path):
    found = python_side.interpreter(world(tmp_path), sys.executable)
    assert (found.version, found.bits) == (sys.version.split()[0], 64)
    assert found.environment in ("venv", "conda", "system")


def test_another_interpreter_is_asked(tmp_path):
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.symlink_to(sys.executable)
    found = python_side.interpreter(worlds.live(), str(other))
    assert (found.path, found.version) == (str(other), sys.version.split()[0])


def test_interpreters_that_do_not_answer(tmp_path):
    here = {
        "one": Output(code=1, stderr="Traceback\nImportError: no encodings"),
        "two": Output(code=-9, timed_out=True),
        "three": "hi",
    }
    reasons = [python_side.interpreter(world(tmp_path, here), name).version.reason for name in ("one", "two", "three", "four")]
    assert reasons == ["unreadable", "probe-timeout", "unreadable", "not-found"]
    beside = os.path.join(os.path.dirname(sys.executable), "not-there")
    assert python_side.interpreter(world(tmp_path), beside).version.reason == "not-found"


def test_torches_of_other_environments(tmp_path):
    for place, version in (("/home/x/ml", "2.7.0+cu128"), ("/home/x/old", "1.13.0"), ("/home/x/own", "2.8.0")):
        write(tmp_path, f"{place}/lib/python3.11/site-packages/torch/version.py", f"__all__ = []\n__version__ = '{version}'\n")
    write(tmp_path, "/home/x/.conda/environments.txt", "/home/x/ml\n/home/x/gone\n/home/x/own\n")
    here = world(tmp_path, environ={"HOME": "/home/x", "VIRTUAL_ENV": "/home/x/old"})
    assert python_side.other_torches(here, "/home/x/own/bin/python") == ["1.13.0 in /home/x/old", "2.7.0+cu128 in /home/x/ml"]
