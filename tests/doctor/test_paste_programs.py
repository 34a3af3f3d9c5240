"""Reports in many words, judged: PyTorch, the program, and what is no fault at all.

Written for this test. Each names a cause as people name it, with other cards, versions and words than the next; a blank
line ends a report.
"""

from __future__ import annotations

import pytest

from flatout.doctor import registry, root_cause
from flatout.doctor.paste.reader import read

REPORTS = {
    "cpu-only-wheel": r"""
pip resolved torch-2.4.0-cp310-cp310-win_amd64.whl (CPU) as dependency; GPU ignored. torch.cuda.is_available(): False;
torch.version.cuda: None

Device set to use cpu even though I own an RTX 4070. >>> torch.__version__ '2.5.0+cpu'

mamba env update swapped pytorch cuda build for cpu_mkl build: pytorch 2.4.0 cpu_mkl_py311h1234_100

Whisper runs on CPU, "FP16 is not supported on CPU; using FP32 instead". torch 2.0.1+cpu

YOLO training is running on CPU only. torch: 2.1.0+cpu, GPU: GTX 1660 SUPER

Could not use GPU, print(torch.__version__) gives 1.13.1+cpu
""",
    "arch-not-in-wheel": r"""
5070ti 运行报错：NVIDIA GeForce RTX 5070 Ti with CUDA capability sm_120 is not compatible with the current PyTorch
installation

torch 2.6 stable doesn't support Blackwell sm_120

RuntimeError: CUDA error: no kernel image is available for execution on the device; RTX 3050 Laptop GPU; torch==1.5.1

RTX 5090 CUDA error: no kernel image is available for execution on the device
PyTorch version: 2.6.0
CUDA used to build PyTorch: 12.4

NVIDIA GeForce RTX 5070 Laptop GPU (sm_120) unsupported by my torch 2.3.1+cu121

RTX 4090 + torch 1.11.0+cu102: no kernel image is available
""",
    "arch-dropped": r"""
Tesla K40c is of cuda capability 3.5, minimum supported 3.7

GTX 970 sm_52 with pytorch 2.9.0+cu128 - CUDA error: no kernel image is available

Titan V no longer supported in cu130 nightly

GeForce 940MX: torch 2.8.0+cu128 says no kernel image is available, sm_50

Quadro P2000 (sm_61) no longer supported with CUDA 13 wheels torch 2.9.0+cu130

PyTorch 2.8 dropped Maxwell and Pascal from the CUDA 12.8 wheels
""",
    "arch-not-in-extension": r"""
RuntimeError in flash_attn_2_cuda: no kernel image; GPU RTX 5080; torch 2.7.0+cu128 basic ops run

vLLM: torch.ops._C no kernel image available on RTX 5090; plain torch matmul fine
PyTorch version: 2.7.1+cu128
Is CUDA available: True
GPU 0: NVIDIA GeForce RTX 5090

mmcv ops: no kernel image is available for execution on the device (RTX 4090), torch 2.1.0+cu121 OK

bitsandbytes: no kernel image is available for execution on the device at line 529 in file ops.cu, GPU Tesla P40,
torch 2.1.0+cu118 works

sageattention build misses sm_120: no kernel image; torch 2.8.0+cu128 on RTX 5090 is fine

flash_attn raises RuntimeError: CUDA error: no kernel image is available on RTX 5090, torch 2.8.0+cu128 runs fine by
itself (matmul OK)
PyTorch version: 2.8.0+cu128
CUDA used to build PyTorch: 12.8
Is CUDA available: True
GPU 0: NVIDIA GeForce RTX 5090
""",
    "visible-devices": r"""
CUDA_VISIBLE_DEVICES='' in docker-compose environment; torch.cuda.device_count() 0

Changing CUDA_VISIBLE_DEVICES in the notebook has no effect after first cuda call

ROCR_VISIBLE_DEVICES=0
HIP_VISIBLE_DEVICES=1
torch sees 0 devices on 2x MI210

CUDA_VISIBLE_DEVICES=1 on a single-GPU machine, torch: No CUDA GPUs are available
GPU 0: NVIDIA GeForce RTX 3060

set CUDA_VISIBLE_DEVICES=-1 left over from tensorflow experiments → torch.cuda.is_available() False

import torch 之后再设置 CUDA_VISIBLE_DEVICES 不生效
""",
    "wrong-device-index": r"""
yolo train device=0,1 on one GPU → Invalid CUDA 'device=0,1' requested

invalid device ordinal: local_rank 4 with 4 GPUs

device 'cuda:2' requested but only 2 GPUs: CUDA error: invalid device ordinal

RuntimeError: CUDA error: invalid device ordinal
GPU 0: NVIDIA GeForce RTX 2080 Ti
device_id: 1

CUDA error: invalid device ordinal, config asks for gpu 4 but there are only 4 GPUs (0-3)

torchrun --nproc_per_node=8 on a 4 GPU box: invalid device ordinal
""",
    "device-mismatch": r"""
expected all tensors on same device but got weight is on cpu, different from other tensors on cuda:0

模型在cuda:0上，输入在cpu上，报错 Expected all tensors to be on the same device

mat2 is on cuda:0, different from other tensors on cpu

RuntimeError: Tensor for argument #2 'mat1' is on CPU, but expected it to be on GPU

Expected all tensors to be on the same device, but found at least two devices, cpu and cuda:0!

RuntimeError: Expected object of device type cuda but got device type cpu for argument #1 'self' in call to _th_mm
""",
    "oom-fragmentation": r"""
reserved 20 GiB, allocated 11 GiB, tried 1 GiB → OOM: fragmentation in caching allocator

CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 39.59 GiB total capacity; 20.11 GiB already allocated; 1.02 GiB
free; 37.20 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb
to avoid fragmentation.

CUDA out of memory though 10 GiB are free according to nvidia-smi; fragmentation suspected

PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 avoids the OOM

torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of
which 1.12 GiB is free. Including non-PyTorch memory, this process has 22.50 GiB memory in use. Of the allocated
memory 12.10 GiB is allocated by PyTorch, and 9.80 GiB is reserved by PyTorch but unallocated. If reserved but
unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.

RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 15.90 GiB total capacity; 8.20 GiB already
allocated; 600.00 MiB free; 14.50 GiB reserved in total by PyTorch)
""",
    "memory-held-by-other": r"""
nvidia-smi: 23GB used by PID not found (dead process), new job gets CUDA OOM

显存被占满但是nvidia-smi没有进程

GPU memory is occupied (10 GB) although no training is running; fuser shows a dead python

Out of memory right at start because another user is using the GPU

CUDA out of memory, nvidia-smi lists a python process from a crashed notebook still occupying 22GB

GPU memory stays allocated after the script ended; zombie worker processes
""",
    "sysmem-fallback": r"""
Stable Diffusion became 5x slower on Windows after driver 537, memory spills into system RAM

Windows 11 / RTX 3060 6GB: no OOM, but iterations take minutes, shared GPU memory 5 GB in use

generation speed dropped massively after updating nvidia driver to 535 on Windows

instead of an OOM error Windows starts using shared GPU memory and everything crawls

NVIDIA 'CUDA - Sysmem Fallback Policy' makes training spill into RAM on Windows, 20x slower

Since driver 535 ComfyUI on Windows does not OOM any more but takes forever; GPU memory overflows to shared memory
""",
    "dataloader-bottleneck": r"""
GPU util 5%, dataloading is the slowest part

GPU starved: waiting on DataLoader each iteration

Low GPU-Util with high CPU usage during training

GPU utilization around 10-20%, is this normal? batch loading from disk

训练时GPU利用率忽高忽低，数据加载太慢

DataLoader with num_workers=0 is the bottleneck
""",
    "shared-memory": r"""
DataLoader crash in Docker with Bus error (core dumped), fixed by --ipc=host

RuntimeError: DataLoader worker (pid(s) 1234) exited unexpectedly; insufficient shared memory (shm) in container

OSError: [Errno 28] No space left on device: '/torch_1234' /dev/shm full

DataLoader worker killed by bus error in docker, /dev/shm is only 64MB

ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).

RuntimeError: unable to open shared memory object </torch_29919_1396182366> in read-write mode
""",
    "pin-memory-thread": r"""
pin_memory=True → RuntimeError: Pin memory thread exited unexpectedly

RuntimeError: Pin memory thread exited unexpectedly

Caught RuntimeError in pin memory thread for device 0

Pin memory thread exited unexpectedly when using persistent_workers on Windows

RuntimeError: Pin memory thread exited unexpectedly
Exception in thread Thread-3 (_pin_memory_loop)
""",
    "spawn-main-guard": r"""
multiprocessing RuntimeError on Windows, missing if __name__ == '__main__'

The "freeze_support()" line can be omitted if the program is not going to be frozen to produce an executable.

RuntimeError: freeze_support() ... on Windows when num_workers > 0

BrokenPipeError: [Errno 32] Broken pipe from DataLoader with num_workers=2 on Windows 10, script has no __main__ guard

RuntimeError: An attempt has been made to start a new process before the current process has finished its
bootstrapping phase. This probably means that you are not using fork

Windows 10: DataLoader with num_workers=4 fails, need if __name__ == '__main__': freeze_support()
""",
    "python-version-unsupported": r"""
torch==2.2.0 has no wheel for Python 3.13: No matching distribution found

Python 3.14: No matching distribution found for torch==2.8.0

ERROR: Could not find a version that satisfies the requirement torch>=2.0 (from versions: none)
Python 3.7.9

ERROR: No matching distribution found for torch==2.0.1
python: 3.12

No matching distribution found for torch, Python 3.13 on Windows, pip says from versions: none

ERROR: Could not find a version that satisfies the requirement torch==1.7.1+cu110 (from versions: 1.11.0, 1.12.0)
Python version: 3.10
""",
    "wrong-index-url": r"""
https://download.pytorch.org/whl/cu132 : ERROR: No matching distribution found for torch==2.8.0 (Python 3.12)

ERROR: Could not find a version that satisfies the requirement torch==2.5.1+cu126 (from versions: 2.6.0+cu126)
Python 3.11

ERROR: Could not find a version that satisfies the requirement torch==2.1.0+cu122
Python version: 3.10

Looking in indexes: https://download.pytorch.org/whl/cu123
ERROR: No matching distribution found for torch
Python version: 3.11

ERROR: Could not find a version that satisfies the requirement torch==2.7.0 (from versions: none)
Looking in indexes: https://download.pytorch.org/whl/cu125
Python 3.11

pip install torch --index-url https://download.pytorch.org/whl/cu127 -> No matching distribution found for torch
""",
    "windows-dll-missing": r"""
Error loading "torch_cpu.dll" or one of its dependencies (WinError 126), VC++ redistributable missing

[WinError 126] The specified module could not be found. Error loading
"C:\ComfyUI\python_embeded\Lib\site-packages\torch\lib\c10.dll" or one of its dependencies.

ImportError: DLL load failed while importing _C: The specified module could not be found.

OSError: [WinError 127] The specified procedure could not be found. Error loading caffe2_nvrtc.dll

Error loading torch_python.dll or one of its dependencies; Microsoft Visual C++ Redistributable is not installed
OS: Windows 10

OSError: [WinError 126] The specified module could not be found. Error loading
"C:\Users\me\miniconda3\envs\ai\lib\site-packages\torch\lib\shm.dll" or one of its dependencies.
""",
    "triton-missing-windows": r"""
torch.compile on Windows: RuntimeError: Cannot find a working triton installation. Either the package is not installed
or it is too old.

ImportError: triton not found on Windows, torch.compile unusable

A matching Triton is not available, some optimizations will not be enabled. Error: No module named 'triton'
OS: Windows 11

BackendCompilerFailed: backend='inductor' raised: RuntimeError: Cannot find a working triton installation
OS: Windows

torch._inductor.exc.TritonMissing: Cannot find a working triton installation. Windows 11

ModuleNotFoundError: No module named 'triton' on Windows when calling torch.compile
""",
    "wrong-environment": r"""
which python → /usr/bin/python3 has torch 2.1+cpu, venv has 2.3.0+cu121; script runs with the wrong interpreter

jupyter kernel imports torch from /home/u/.local while conda env has torch 2.1.0+cu118; the env works from the shell

CUDA is available in Anaconda prompt but not in PyCharm

我在命令行里 torch.cuda.is_available() 是 True，但是在 PyCharm 里是 False

app ships its own python_embeded; pip installed the right torch in system python instead, plain python detects the GPU

GPU works from the command line python but the VS Code notebook kernel reports CUDA False
""",
    "rocm-igpu": r"""
HSA error / HIP: device kernel image is invalid, 2 devices: RX 7700 XT gfx1101, iGPU gfx1036

RX 7900 XTX and 7800X3D: 'HIP error: invalid device function' unless HIP_VISIBLE_DEVICES excludes the integrated GPU

ROCm picks the Ryzen iGPU (gfx1036) instead of the RX 7800 XT; HIP error: invalid device function

torch on ROCm crashes: rocBLAS error: Cannot read TensileLibrary.dat: Illegal seek for GPU arch : gfx1036

HIP error: invalid device function, ROCm sees both gfx1100 and gfx1036 (Ryzen 7950X iGPU)

RuntimeError: HIP error: the operation cannot be performed in the present state; RX 6800 XT (gfx1030) plus Radeon
Graphics iGPU (gfx1036), torch 2.4.0+rocm6.1
""",
    "healthy": r"""
pcie gen 1 reported by nvidia-smi when GPU is idle, goes to gen 4 under load

Windows task manager does not show CUDA load, GPU 1%

sm_86 binary running on sm_89 card warns about missing sm_89; works fine

torch.version.cuda is 12.1 but I installed toolkit 12.4, GPU works

PCIe link shows Gen 1 at idle on RTX 3080

Task manager shows GPU at 2% while training YOLO, nvidia-smi 95%

在任务管理器里GPU占用几乎为0，但是训练速度正常

RTX 4060 (sm_89): PyTorch arch list is sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90, is my GPU unsupported?

nvcc --version shows 11.5 while torch uses 12.1, is that a conflict? torch.cuda.is_available() is True

memory usage in nvidia-smi is higher than torch.cuda.memory_allocated, why?

GPU memory usage 400MiB from Xorg and gnome-shell, is this normal

nvidia-smi says 'No running processes found' but my training works, WSL2
""",
}
CASES = [(name, report.strip()) for name, block in REPORTS.items() for report in block.split("\n\n")]


@pytest.mark.parametrize(("name", "report"), CASES, ids=[f"{name}-{report[:24]}" for name, report in CASES])
def test_cause(name, report):
    result = root_cause.judge(read(report), registry.all_rules())
    assert not result.crashed
    assert (result.root_cause.name if result.root_cause else "healthy") == name
