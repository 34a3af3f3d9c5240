"""What the user's interpreter and its torch say of themselves. Run as a file by that interpreter; never imported.

Standard library and torch alone, Python 3.8+, torch 1.12+. After every stage one line with all that is known so far
goes to the real standard output, behind a mark: whatever hangs or crashes next, the facts before it are already there,
together with the name of the stage that did not end. All other output of this process is sent to standard error.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import struct
import sys
import threading
import warnings
from typing import Any, Callable, TextIO  # noqa: UP035 - Python 3.8

Known = Any  # a dict of what is known so far, ready for JSON

MARK = "flatout-torch-facts "
DRIVER_LIMIT_S = 10.0
LONGEST = 600
MOST_LIBRARIES = 80
EXTENSIONS = [
    "flash-attn",
    "flash-attn-3",
    "xformers",
    "vllm",
    "bitsandbytes",
    "torchvision",
    "torchaudio",
    "triton",
    "triton-windows",
    "pytorch-triton",
    "deepspeed",
    "apex",
    "sageattention",
    "torchao",
    "mamba-ssm",
    "causal-conv1d",
    "auto-gptq",
]
LIBRARY = re.compile(
    r"^(?:lib)?(cuda|nvcuda|cudart|cudnn\w*?|cublas|cublasLt|nccl|nvrtc|nvidia-ml|amdhip|MIOpen|rocblas)"
    r"(?:64)?(?:_([\d_]+))?(?:-[0-9a-f]{8})?\.(?:so|dll)(?:\.(\d[\d.]*))?$"
)


class Facts:
    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.known: dict[str, Any] = {}

    def stage(self, name: str, question: Callable[[Known], None]) -> None:
        """Tell what is known and what comes next, then ask; a fault in it is one more fact."""
        self.known["stage"] = name
        self.tell()
        try:
            question(self.known)
        except BaseException as error:  # noqa: BLE001 - also SystemExit: some packages leave at import
            self.known.setdefault("faults", {})[name] = describe(error)

    def tell(self) -> None:
        self.stream.write(MARK + json.dumps(self.known) + "\n")
        self.stream.flush()


def describe(error: BaseException) -> str:
    """Type and last line: the rest is the user's paths."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    if isinstance(error, RuntimeError) and lines:
        text = lines[0]  # CUDA's own sentence comes first, hints follow
    return f"{type(error).__name__}: {text}"[:LONGEST]


def interpreter(known: Known) -> None:
    prefix = sys.prefix
    known["python"] = {
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "bits": struct.calcsize("P") * 8,
        "conda": os.path.isdir(os.path.join(prefix, "conda-meta")),
        "venv": prefix != getattr(sys, "base_prefix", prefix),
    }


def packages(known: Known) -> None:
    """Versions by their metadata: importing an extension may itself crash."""
    from importlib import metadata

    found = {}
    for name in EXTENSIONS:
        try:
            found[name] = metadata.version(name)
        except Exception:  # noqa: BLE001 - not installed, or its metadata is broken
            continue
    known["packages"] = found
    copies = {}
    for place in dict.fromkeys(os.path.realpath(entry or os.curdir) for entry in sys.path):
        for distribution in metadata.distributions(name="torch", path=[place]):
            folder = str(getattr(distribution, "_path", place))
            version = version_of(place, distribution.version)
            copies[folder] = [version, place, (distribution.read_text("INSTALLER") or "").strip()]
    known["copies"] = list(copies.values())
    known["conda_torch"] = conda_torch()


def version_of(place: str, version: str) -> str:
    """With the build's label, which PyPI's metadata leave out: 2.4.1 is really 2.4.1+cu121."""
    try:
        with open(os.path.join(place, "torch", "version.py"), encoding="utf-8", errors="replace") as file:
            match = re.search(r"__version__ = '([^']+)'", file.read())
    except OSError:
        return version
    return match.group(1) if match and match.group(1).startswith(version) else version


def conda_torch() -> bool:
    try:
        names = os.listdir(os.path.join(sys.prefix, "conda-meta"))
    except OSError:
        return False
    return any(re.match(r"(pytorch|libtorch)-\d.*\.json$", name) for name in names)


def driver(known: Known) -> None:
    """cuInit before torch, in a thread: a driver that never answers must not keep us from asking about torch."""
    import ctypes

    answer: dict[str, Any] = {}
    known["cuda"] = answer
    try:
        library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError as error:
        answer["missing"] = describe(error)
        return

    def ask() -> None:
        number = ctypes.c_int(0)
        if library.cuDriverGetVersion(ctypes.byref(number)) == 0:
            answer["driver_version"] = number.value
        answer["init_code"] = library.cuInit(0)
        if answer["init_code"] == 0 and library.cuDeviceGetCount(ctypes.byref(number)) == 0:
            answer["device_count"] = number.value

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(DRIVER_LIMIT_S)
    if thread.is_alive():
        answer["timeout"] = True


def torch_import(known: Known) -> None:
    from importlib import util

    known["installed"] = util.find_spec("torch") is not None
    if not known["installed"]:
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import torch
    texts = [str(warning.message) for warning in caught if not issubclass(warning.category, DeprecationWarning)]
    known["import_warnings"] = [text[:LONGEST] for text in texts if re.search("cuda|nvidia|driver|numpy", text, re.I)]
    known["imported"] = True
    known["path"] = getattr(torch, "__file__", None) or str(list(getattr(torch, "__path__", []))[:1])


def build(known: Known) -> None:
    import torch

    known["version"] = str(torch.__version__)
    known["built_for"] = {name: getattr(torch.version, name, None) for name in ("cuda", "hip")}
    # Not torch.cuda.get_arch_list(): that is empty where no device is found, which is when it is wanted.
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    known["arch_list"] = flags.split() if flags else []


def devices(known: Known) -> None:
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        known["available"] = bool(torch.cuda.is_available())
        known["device_count"] = int(torch.cuda.device_count())
        if known["available"]:
            count = range(known["device_count"])
            known["devices"] = [torch.cuda.get_device_name(index) for index in count]
            known["capabilities"] = ["{}.{}".format(*torch.cuda.get_device_capability(index)) for index in count]
    known["warnings"] = [str(warning.message)[:LONGEST] for warning in caught]
    if not known["available"] and known["built_for"].get("cuda"):
        try:
            torch.cuda.init()
        except Exception as error:  # noqa: BLE001 - the reason is in its text
            known["init_error"] = describe(error)


def cudnn(known: Known) -> None:
    import torch

    # After the devices: asking loads the library, and a broken one may take the process with it.
    known["cudnn"] = torch.backends.cudnn.version() if known["built_for"].get("cuda") or known["built_for"].get("hip") else None


def kernel(known: Known) -> None:
    if not known.get("available"):
        return
    import torch

    one = torch.arange(256, dtype=torch.float32).reshape(16, 16) / 256
    try:
        result = (one.to("cuda:0") @ one.to("cuda:0")).cpu()
    except Exception as error:  # noqa: BLE001 - whatever torch raises is the fact
        known["kernel"] = describe(error)
        return
    known["kernel"] = "ok" if torch.allclose(result, one @ one, rtol=1e-2, atol=1e-2) else "wrong-result"


def convolution(known: Known) -> None:
    """cuDNN loads its parts when the first convolution asks for them: two releases of it meet only then."""
    if known.get("kernel") != "ok" or not known["built_for"].get("cuda"):
        return
    import torch

    image = torch.ones(1, 1, 8, 8, device="cuda:0")
    try:
        torch.nn.functional.conv2d(image, image[:, :, :3, :3]).cpu()
    except Exception as error:  # noqa: BLE001 - whatever torch raises is the fact
        known["kernel"] = describe(error)


def libraries(known: Known) -> None:
    """Which files are mapped into this very process: two cuDNNs show here and nowhere else."""
    found = {}
    for path in mapped():
        match = LIBRARY.match(os.path.basename(path))
        if match:
            version = (match.group(3) or match.group(2) or "").replace("_", ".")
            found[path] = [match.group(1).replace("nvcuda", "cuda"), path, full_version(path) or version]
    known["libraries"] = [found[path] for path in sorted(found)][:MOST_LIBRARIES]


def mapped() -> set[str]:
    if sys.platform == "win32":
        return mapped_on_windows()
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            return {line.split(None, 5)[5].strip() for line in file if line.count("/")}
    except (OSError, IndexError):
        return set()


def mapped_on_windows() -> set[str]:
    import ctypes
    from ctypes import wintypes

    windows: Any = ctypes  # the checker of another system does not know WinDLL
    api = windows.WinDLL("kernel32", use_last_error=True)
    modules, needed = (wintypes.HMODULE * 2048)(), wintypes.DWORD()
    api.GetCurrentProcess.restype = wintypes.HANDLE
    api.K32EnumProcessModules.argtypes = [wintypes.HANDLE, ctypes.c_void_p, wintypes.DWORD, ctypes.c_void_p]
    api.GetModuleFileNameW.argtypes = [wintypes.HMODULE, wintypes.LPWSTR, wintypes.DWORD]
    if not api.K32EnumProcessModules(api.GetCurrentProcess(), modules, ctypes.sizeof(modules), ctypes.byref(needed)):
        return set()
    found, name = set(), ctypes.create_unicode_buffer(1024)
    for module in modules[: needed.value // ctypes.sizeof(wintypes.HMODULE)]:
        if api.GetModuleFileNameW(module, name, 1024):
            found.add(name.value)
    return found


def full_version(path: str) -> str | None:
    """libcudnn.so.9 of a wheel: its own metadata, beside the folder, has the whole number."""
    match = re.match(r"(.*[\\/]site-packages)[\\/]nvidia[\\/](\w+)[\\/]", path)
    if not match or match.group(2) not in ("cudnn", "nccl"):
        return None
    try:
        names = os.listdir(match.group(1))
    except OSError:
        return None
    for name in names:
        package = re.match(rf"nvidia_{match.group(2)}_cu\d+-([\d.]+)\.dist-info$", name)
        if package:
            return package.group(1)
    return None


def leave_no_core() -> None:
    """A crash here is an answer: gigabytes of it in the user's folder are not wanted."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (ImportError, OSError, ValueError):
        pass


def main() -> None:
    # Only now is standard output ours: what site and .pth files printed is before the first mark.
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    faulthandler.enable()
    leave_no_core()
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    facts = Facts(stream)
    facts.stage("interpreter", interpreter)
    facts.stage("packages", packages)
    facts.stage("driver", driver)
    facts.stage("import", torch_import)
    if facts.known.get("imported"):
        facts.stage("build", build)
        facts.stage("devices", devices)
        facts.stage("libraries", libraries)
        facts.stage("cudnn", cudnn)
        facts.stage("kernel", kernel)
        facts.stage("convolution", convolution)
        facts.stage("libraries again", libraries)
    facts.known["stage"] = "end"
    facts.tell()
    # Not through the interpreter's own end: threads stuck in the driver and exit handlers of packages would hold us.
    os._exit(0)


if __name__ == "__main__":
    main()
