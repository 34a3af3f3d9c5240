"""The paste reader: what each tool prints goes into the right fields, whatever was done to the text on its way."""

from __future__ import annotations

import pytest
from test_paste_samples import COLLECT_ENV, MIB, NEW_TABLE, OLD_TABLE, QUERY, at, codes, params, strict

from flatout.base.records import Missing
from flatout.doctor.symptoms import SYMPTOMS

FACTS = [
    (OLD_TABLE, "driver.version", "430.50"),
    (OLD_TABLE, "driver.cuda", "10.1"),
    (OLD_TABLE, "driver.gpus.0.persistence", True),
    (OLD_TABLE, "driver.gpus.0.compute_mode", "exclusive_process"),
    (OLD_TABLE, "driver.gpus.0.utilisation", 37),
    (OLD_TABLE, "driver.gpus.0.memory_free_bytes", (11178 - 9114) * MIB),
    (OLD_TABLE, "driver.gpus.0.power_limit_w", 250.0),
    (OLD_TABLE, "driver.gpus.0.processes.0.pid", 12345),
    (OLD_TABLE, "driver.gpus.0.processes.0.memory_bytes", 9101 * MIB),
    (OLD_TABLE, "driver.gpus.1.ecc_uncorrected", 2),
    (NEW_TABLE, "driver.gpus.0.name", "NVIDIA GeForce RTX 5080"),
    (NEW_TABLE, "driver.gpus.0.driver_model", "WDDM"),
    (NEW_TABLE, "driver.gpus.0.pstate", "P8"),
    (NEW_TABLE, "system.name", "Windows"),
    (NEW_TABLE, "cuda.toolkits", Missing("unknown")),
    (QUERY, "driver.gpus.0.name", "NVIDIA A100-PCIE-40GB"),
    (QUERY, "driver.gpus.0.mig_enabled", True),
    (QUERY, "driver.gpus.0.link_width", 8),
    (QUERY, "driver.gpus.0.link_width_max", 16),
    (QUERY, "driver.gpus.0.clock_events", ["SW_POWER_CAP", "SW_THERMAL_SLOWDOWN"]),
    (QUERY, "driver.gpus.0.compute_mode", "exclusive_process"),
    (QUERY, "driver.gpus.0.ecc_uncorrected", 4),
    (QUERY, "driver.gpus.0.ecc_pending", True),
    (QUERY, "driver.gpus.0.remap_failed", False),
    (QUERY, "driver.gpus.0.power_limit_w", 150.0),
    (QUERY, "driver.gpus.0.power_limit_default_w", 250.0),
    (QUERY, "driver.gpus.0.sm_clock_max_mhz", 1410),
    (QUERY, "driver.cuda", "12.4"),
    (COLLECT_ENV, "torch.version", "2.4.1+cu121"),
    (COLLECT_ENV, "torch.cuda", "12.1"),
    (COLLECT_ENV, "torch.available", True),
    (COLLECT_ENV, "torch.triton", "3.0.0"),
    (COLLECT_ENV, "torch.others", Missing("unknown")),
    (COLLECT_ENV, "cuda.nvcc", "11.8"),
    (COLLECT_ENV, "driver.version", "545.23.08"),
    (COLLECT_ENV, "driver.gpus.1.name", "NVIDIA GeForce RTX 3090"),
    (COLLECT_ENV, "system.distribution", "Ubuntu 22.04.4 LTS"),
    (COLLECT_ENV, "system.release", "6.5.0-41-generic"),
    (COLLECT_ENV, "python.version", "3.11.9"),
    (COLLECT_ENV, "python.bits", 64),
    ("torch 2.7.1+cu118", "torch.cuda", "11.8"),
    ("torch              1.8.1+cu92", "torch.cuda", "9.2"),
    ("torch==2.2.0+cpu", "torch.cuda", "none"),
    ("PyTorch version: 2.0.1\nCUDA used to build PyTorch: None", "torch.cuda", "none"),
    ("PyTorch version: 2.9.0+rocm6.4", "torch.hip", "6.4"),
    ("PyTorch version: N/A\nCUDA used to build PyTorch: N/A", "torch.status", "import-failed"),
    ("PyTorch version: N/A\nCUDA used to build PyTorch: N/A", "torch.cuda", Missing("unknown")),
    ("pytorch    1.13.1    py3.9_cuda11.7_cudnn8.5.0_0    pytorch", "torch.cuda", "11.7"),
    ("pytorch    2.3.0    cuda120_py311h5f01c51_300    conda-forge", "torch.cuda", "12.0"),
    ("pytorch    1.11.0    py3.8_cpu_0    pytorch", "torch.cuda", "none"),
    ("pytorch    1.11.0    py3.8_cpu_0    pytorch", "torch.installer", "conda"),
    ("Name: torch\nVersion: 2.5.0+cu124\nSummary: Tensors", "torch.version", "2.5.0+cu124"),
    ("Ultralytics YOLOv8.2 Python-3.9.13 torch-2.1.2+cu121 CUDA:0 (NVIDIA RTX A2000, 6138MiB)", "torch.available", True),
    ("Ultralytics YOLOv8.2 Python-3.9.13 torch-2.1.2+cpu CPU (Intel Core i7)", "torch.cuda", "none"),
    ("GPU 0: Tesla T4 (UUID: GPU-9b5ce9e2-1111-2222-3333-444455556666)", "driver.gpus.0.name", "Tesla T4"),
    ("index, name, memory.total [MiB], pstate\n0, NVIDIA L4, 23034 MiB, P8", "driver.gpus.0.pstate", "P8"),
    ("name, driver_version, compute_cap\nNVIDIA L4, 550.54.15, 8.9", "driver.version", "550.54.15"),
    ("name, driver_version, compute_cap\nNVIDIA L4, 550.54.15, 8.9", "driver.gpus.0.capability", "8.9"),
    ("Cuda compilation tools, release 12.1, V12.1.105", "cuda.nvcc", "12.1"),
    ("01:00.0 VGA compatible controller: NVIDIA Corporation GA106 [GeForce RTX 3060] (rev a1)\n"
     "\tKernel driver in use: nouveau", "hardware.pci.0.kernel_driver", "nouveau"),
    ("nvidia_uvm        1523712  0\nnvidia        56770560  21 nvidia_uvm", "driver.modules", ["nvidia_uvm", "nvidia"]),
    ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19", "driver.kernel_version", "535.129.03"),
    ("export CUDA_VISIBLE_DEVICES=0,2", "application.environment", {"CUDA_VISIBLE_DEVICES": "0,2"}),
    ("set CUDA_VISIBLE_DEVICES=-1", "application.environment", {"CUDA_VISIBLE_DEVICES": "-1"}),
    ("$env:CUDA_VISIBLE_DEVICES = '1'", "application.environment", {"CUDA_VISIBLE_DEVICES": "1"}),
    ("os.environ['CUDA_VISIBLE_DEVICES'] = '3'", "application.environment", {"CUDA_VISIBLE_DEVICES": "3"}),
    ("CUDA_VISIBLE_DEVICES=", "application.environment", {"CUDA_VISIBLE_DEVICES": ""}),
    ("shm   64M     0   64M   0% /dev/shm", "application.shm_bytes", 64 * MIB),
    ("SecureBoot enabled", "driver.secure_boot", True),
    ("Python 3.10.6 (tags/v3.10.6) [MSC v.1932 64 bit (AMD64)] on win32", "system.name", "Windows"),
    ('File "C:\\Users\\x\\anaconda3\\envs\\ml\\lib\\site-packages\\torch\\__init__.py"', "python.environment", "conda"),
    ("Linux box 5.15.153.1-microsoft-standard-WSL2", "system.wsl", True),
    ("we run this inside a docker container", "system.container", "docker"),
    ("my RTX4090 and i9", "hardware.pci.0.name", "RTX 4090"),
    ("GTX1080ti", "hardware.pci.0.name", "GTX 1080 Ti"),
    ("on a 3070 laptop", "hardware.pci.0.name", "RTX 3070 Laptop GPU"),
    ("AMD Radeon RX 7600 (gfx1102)", "driver.gpus.0.capability", "gfx1102"),
    ("['sm_50', 'sm_60', 'sm_70']", "torch.arch_list", ["sm_50", "sm_60", "sm_70"]),
    ("操作系统：Windows 11\nPython版本：3.10\n显卡：RTX 3060", "system.name", "Windows"),
    ("操作系统：Windows 11\nPython版本：3.10\n显卡：RTX 3060", "python.version", "3.10"),
    ("GPU 0： NVIDIA GeForce RTX 2070", "driver.gpus.0.name", "NVIDIA GeForce RTX 2070"),
    ('{"torch_version": "2.6.0", "torch_cuda": "12.4",\n"driver_version": "550.54"}', "driver.version", "550.54"),
    ('"torch_version": "2.6.0",\n"torch_cuda": "12.4"', "torch.cuda", "12.4"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path", "value"), FACTS, ids=[f"{text.strip()[:16]}-{path}" for text, path, _ in FACTS])
def test_fact(text, path, value):
    assert at(strict(text), path) == value


ERRORS = [
    ("CUDA error: no CUDA-capable device is detected", 100),
    ("cuda runtime error (46) : all CUDA-capable devices are busy or unavailable", 46),
    ("cuda runtime error (10) : invalid device ordinal", 101),
    ("THCudaCheck FAIL error=30 : cuda runtime error (30) : unknown error", 999),
    ("Error 804: forward compatibility was attempted on non supported HW", 804),
    ("Call to cuInit results in CUDA_ERROR_NO_DEVICE (100)", 100),
    ("CUDA_ERROR_SYSTEM_NOT_READY", 802),
    ("cuInit returned 803", 803),
    ("cudaErrorInsufficientDriver", 35),
    ("the provided PTX was compiled with an unsupported toolchain", 222),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", 700),
    ("CUDA错误 802", 802),
]


@pytest.mark.parametrize(("text", "number"), ERRORS)
def test_cuda_error(text, number):
    facts = strict(text)
    assert number in [symptom.params["code"] for symptom in facts.symptoms if symptom.code == "cuda-error"]


VALUES = [
    ("driver on your system is too old (found version 11040)", "driver-too-old", {"found": "11.4"}),
    ("No matching distribution found for torch==1.9.1", "no-matching-distribution", {"requirement": "torch==1.9.1"}),
    ("Error loading \"C:\\x\\torch\\lib\\c10.dll\" [WinError 126]", "dll-not-found", {"library": "c10.dll"}),
    ("libcudnn.so.8: cannot open shared object file", "shared-library-not-found", {"library": "libcudnn.so.8"}),
    ("compiled against (8, 3, 2) but linked against (8, 0, 3)", "cudnn-version-mismatch",
     {"compiled": "8.3.2", "found": "8.0.3"}),
    ("found at least two devices, cuda:1 and cpu!", "device-mismatch", {"first": "cuda:1", "second": "cpu"}),
    ("NVRM: Xid (PCI:0000:01:00): 79, pid=4", "xid", {"number": 79}),
    ("GPU utilization is only 23%", "low-utilisation", {"percent": 23}),
    ("HIP error: invalid device function", "hip-error", {"text": "invalid device function"}),
    ("Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1.",
     "invalid-device-ordinal", {"ordinal": 3}),
    ("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 5.00 GiB already allocated; 512.00 MiB"
     " free; 6.00 GiB reserved in total by PyTorch)", "out-of-memory",
     {"tried_bytes": 2 << 30, "total_bytes": 8 << 30, "allocated_bytes": 5 << 30, "free_bytes": 512 * MIB,
      "reserved_bytes": 6 << 30}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "values"), VALUES, ids=[code for _, code, _ in VALUES])
def test_values_of_a_message(text, code, values):
    found = params(strict(text), code)
    assert {name: found.get(name) for name in values} == values


NOTHING_WRONG = [
    COLLECT_ENV,
    NEW_TABLE,
    "it works now",
    "no overheating, no throttling, the clocks are fine",
    "this is not a memory leak",
    "GPU in P8 while idle",
    "the card idles at PCIe gen 1 x16",
    "Fan speed 30%, Volatile Uncorr. ECC: N/A",
]


@pytest.mark.parametrize("text", NOTHING_WRONG)
def test_no_symptom_where_nothing_is_wrong(text):
    assert codes(strict(text)) <= {"healthy-remark"}


def test_only_known_codes():
    everything = "\n\n".join(text for text, *_ in (*FACTS, *ERRORS, *VALUES))
    for symptom in strict(everything).symptoms:
        assert set(symptom.params) <= set(SYMPTOMS[symptom.code])
