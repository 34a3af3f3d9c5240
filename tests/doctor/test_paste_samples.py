"""Pastes that tests of the paste reader share: small outputs of the tools, and strict reading."""

from __future__ import annotations

from flatout.doctor.paste.draft import Draft
from flatout.doctor.paste.reader import READERS, clean
from flatout.machine.machine_facts import Facts

MIB = 1 << 20

OLD_TABLE = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 430.50       Driver Version: 430.50       CUDA Version: 10.1     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  GeForce GTX 108...  On   | 00000000:02:00.0 Off |                  N/A |
| 23%   41C    P2    66W / 250W |   9114MiB / 11178MiB |     37%   E. Process |
+-------------------------------+----------------------+----------------------+
|   1  Tesla V100-SXM2...  Off  | 00000000:0B:00.0 Off |                    2 |
| N/A   35C    P0    42W / 300W |      0MiB / 16130MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    0     12345      C   python train.py                             9101MiB |
+-----------------------------------------------------------------------------+
"""
NEW_TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 572.16                 Driver Version: 572.16         CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                  Driver-Model | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA GeForce RTX 5080      WDDM  |   00000000:01:00.0  On |                  N/A |
|  0%   34C    P8             14W /  360W |     933MiB /  16303MiB |      2%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
"""
QUERY = """\
==============NVSMI LOG==============
Driver Version                                         : 550.90.07
CUDA Version                                           : 12.4
Attached GPUs                                          : 1
GPU 00000000:3B:00.0
    Product Name                                       : NVIDIA A100-PCIE-40GB
    Persistence Mode                                   : Enabled
    MIG Mode
        Current                                        : Enabled
        Pending                                        : Enabled
    GPU Link Info
        PCIe Generation
            Max                                        : 4
            Current                                    : 4
        Link Width
            Max                                        : 16x
            Current                                    : 8x
    Performance State                                  : P0
    Clocks Event Reasons
        Idle                                           : Not Active
        SW Power Cap                                   : Active
        HW Slowdown                                    : Not Active
            HW Thermal Slowdown                        : Not Active
        SW Thermal Slowdown                            : Active
    FB Memory Usage
        Total                                          : 40960 MiB
        Free                                           : 39000 MiB
    Compute Mode                                       : Exclusive_Process
    Utilization
        Gpu                                            : 88 %
    ECC Errors
        Volatile
            DRAM Uncorrectable                         : 3
        Aggregate
            DRAM Uncorrectable                         : 1
    Remapped Rows
        Pending                                        : Yes
        Remapping Failure Occurred                     : No
    Temperature
        GPU Current Temp                               : 86 C
    GPU Power Readings
        Average Power Draw                             : 240.10 W
        Current Power Limit                            : 150.00 W
        Default Power Limit                            : 250.00 W
        Max Power Limit                                : 250.00 W
    Clocks
        SM                                             : 765 MHz
    Max Clocks
        SM                                             : 1410 MHz
"""
COLLECT_ENV = """\
Collecting environment information...
PyTorch version: 2.4.1+cu121
Is debug build: False
CUDA used to build PyTorch: 12.1
ROCM used to build PyTorch: N/A

OS: Ubuntu 22.04.4 LTS (x86_64)
Python version: 3.11.9 (main, Apr 19 2024, 16:48:06) [GCC 11.2.0] (64-bit runtime)
Python platform: Linux-6.5.0-41-generic-x86_64-with-glibc2.35
Is CUDA available: True
CUDA runtime version: 11.8.89
CUDA_MODULE_LOADING set to: LAZY
GPU models and configuration:
GPU 0: NVIDIA GeForce RTX 3090
GPU 1: NVIDIA GeForce RTX 3090

Nvidia driver version: 545.23.08
cuDNN version: Probably one of the following:
/usr/lib/x86_64-linux-gnu/libcudnn.so.8.9.7
Caching allocator config: N/A

Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] torch==2.4.1
[pip3] triton==3.0.0
"""


def strict(text: str) -> Facts:
    """As `read`, but a reader that stumbles fails the test."""
    draft, cleaned = Draft(), clean(text)
    if cleaned is not None:
        for reader in READERS:
            reader.read(cleaned, draft)
    return draft.done()


def at(facts: Facts, path: str) -> object:
    """`driver.gpus.0.name`"""
    value: object = facts
    for step in path.split("."):
        value = value[int(step)] if step.isdigit() else getattr(value, step)
    return value


def codes(facts: Facts) -> set[str]:
    return {symptom.code for symptom in facts.symptoms}


def params(facts: Facts, code: str) -> dict[str, object]:
    return next(symptom.params for symptom in facts.symptoms if symptom.code == code)
