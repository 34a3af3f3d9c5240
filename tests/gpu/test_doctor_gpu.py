"""The doctor on a real GPU: healthy as it is, and broken for real in ways that can be put back."""

import glob
import json
import os
import shutil
import subprocess
import sys
import venv

import pytest

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

DRIVER_LIBRARIES = ("libcuda.so", "libnvidia-ml.so")


def verdict(flatout, **env):
    ended = flatout("doctor", "--json", env=env)
    assert "Traceback" not in ended.stderr
    return json.loads(ended.stdout)


def test_healthy_as_it_is(flatout):
    ended = flatout("doctor")
    print(ended.stdout.decode())
    assert ended.returncode == 0, ended.stdout.decode()


@pytest.mark.parametrize("value", ["", "-1", "7", "GPU-00000000-1111-2222-3333-444444444444", "0,0"])
def test_visible_devices(value, flatout):
    found = verdict(flatout, CUDA_VISIBLE_DEVICES=value)
    assert found["root_cause"]["name"] == "visible-devices", found
    assert found["root_cause"]["fix"]


@pytest.mark.parametrize("value", ["0", None])
def test_harmless_visible_devices(value, flatout):
    value = value or f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    assert verdict(flatout, CUDA_VISIBLE_DEVICES=value)["healthy"]


@pytest.mark.skipif(os.geteuid() != 0, reason="hiding the driver's library takes a mount")
def test_driver_library_hidden(tmp_path):
    """In a mount namespace of its own, an empty file lies over each of the driver's libraries."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    paths = {line.split("=>")[1].strip() for line in listed.splitlines() if line.strip().startswith(DRIVER_LIBRARIES)}
    for folder in (*os.environ.get("LD_LIBRARY_PATH", "").split(":"), "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu"):
        paths |= {path for name in DRIVER_LIBRARIES for path in glob.glob(f"{folder}/{name}*") if folder}
    hide = "; ".join(f"mount --bind /dev/null {os.path.realpath(path)}" for path in sorted(paths))
    command = f"{hide}; exec {sys.executable} -m flatout doctor --json"
    ended = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)
    found = json.loads(ended.stdout)
    print(json.dumps(found["root_cause"]))
    assert found["root_cause"]["name"] == "driver-library-missing", found


def test_another_cudnn_before_torchs_own(flatout, tmp_path):
    """A library of cuDNN's name without its functions, as of another release, earlier on LD_LIBRARY_PATH than torch's own."""
    other = next(path for path in ("/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6") if os.path.exists(path))
    own = glob.glob(f"{os.path.dirname(torch.__file__)}/../nvidia/cudnn/lib/libcudnn*.so*")
    for name in {os.path.basename(path) for path in own} or {"libcudnn.so.9"}:
        shutil.copy(other, tmp_path / name)
    found = verdict(flatout, LD_LIBRARY_PATH=f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    print(json.dumps(found["root_cause"]), json.dumps(found["findings"]))
    assert found["root_cause"]["name"] == "library-shadowing", found
    assert str(tmp_path) in json.dumps(found["root_cause"]["evidence"])


def test_the_same_cudnn_twice_is_harmless(flatout, tmp_path):
    own = glob.glob(f"{sys.prefix}/lib/python3*/site-packages/nvidia/cudnn/lib/*.so*")
    if not own:
        pytest.skip("torch's cuDNN is not a package of its own here")
    for path in own:
        shutil.copy(path, tmp_path)
    assert verdict(flatout, LD_LIBRARY_PATH=f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}")["healthy"]


CPU_TORCH = """
__version__ = "2.13.0+cpu"
class version: cuda = hip = None
class _C: pass
class cuda:
    @staticmethod
    def is_available(): return False
    @staticmethod
    def device_count(): return 0
"""


def test_a_torch_without_cuda(flatout, tmp_path):
    """The user's interpreter has what a CPU build says of itself, on a machine with a working GPU."""
    venv.create(tmp_path / "other", with_pip=False)
    other = tmp_path / "other" / "bin" / "python"
    (site,) = (tmp_path / "other" / "lib").glob("python3*/site-packages")
    for name, text in (
        ("torch/__init__.py", CPU_TORCH),
        ("torch/version.py", "__version__ = '2.13.0+cpu'\ncuda = None\nhip = None\n"),
        ("torch-2.13.0+cpu.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n"),
    ):
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    ended = flatout("doctor", "--json", "--python", other)
    found = json.loads(ended.stdout)
    print(json.dumps(found["root_cause"], indent=1))
    assert found["root_cause"]["name"] == "cpu-only-wheel", found
    assert ended.returncode == 1
    assert str(other) in json.dumps(found["root_cause"]["fix"])
    assert found["layers"]["driver"]["status"] == "ok"


def test_library_face_on_the_gpu():
    import flatout

    report = flatout.GPUDiagnosticTool().generate_gpu_diagnostic_report()
    assert report.healthy
    assert report.device.device == "cuda:0"
    (gpu,) = [gpu for gpu in report.hardware.gpus if gpu.is_selected]
    assert gpu.compute_capability == torch.cuda.get_device_capability()
    assert gpu.is_available
