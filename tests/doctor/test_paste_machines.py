"""Reports in many words, judged: hardware, driver and CUDA.

Written for this test. Each names a cause as people name it, with other cards, versions and words than the next; a blank
line ends a report.
"""

from __future__ import annotations

import pytest

from flatout.doctor import registry, root_cause
from flatout.doctor.paste.reader import read

REPORTS = {
    "hybrid-graphics": r"""
Laptop in integrated mode, supergfxctl -g Integrated, torch can't see dGPU

GPU missing in device manager until switching from Eco to Standard in G-Helper

Ultimate/Eco switch: after Eco mode nvidia-smi says No devices were found

独显被关闭了，设备管理器里看不到NVIDIA显卡，笔记本

dGPU disabled by Eco/iGPU-only mode in MyASUS, nvidia-smi: no devices were found
""",
    "low-clocks": r"""
iteration speed drops when display goes to sleep

stuck in P5 with 810 MHz memory clock during training

GPU performance state P8 during training, clocks 210MHz, speed 10x lower

GPU core clock stuck at 405 MHz

RTX 2080 Ti never leaves P8 under load, iterations 5x slower than usual
""",
    "thermal-throttle": r"""
Hot GPU (94°C) lowers clock, training 30% slower

SW Thermal Slowdown Active on passively cooled P40

RTX 3070 laptop thermal throttles at 87C

GPU overheating, HW Thermal Slowdown: Active

GPU temp 95 C, throttling, laptop fans clogged; training slows down after 10 minutes
""",
    "power-cap": r"""
nvidia-smi -q -d PERFORMANCE → SW Power Cap: Active; 3070 laptop drawing only 60W

SW power capping is active, A6000 limited to 200W

Enforced power limit 100 W of 320 W slows training

GPU limited to 60 W on battery, half the speed

RTX 3080 Laptop stuck at 80W TGP, power limit cannot be changed
""",
    "pcie-link": r"""
GPU bandwidthTest shows 3 GB/s; lspci LnkSta Width x4 (downgraded) LnkCap x16

GPU connected via PCIe Gen3 x1 riser, loading is extremely slow

Link width 8x→1x after reseating, H2D copies 10 times slower

second GPU runs at PCIe 3.0 x4 through the chipset, multi-GPU training slow

eGPU/M.2 riser: link width x1, host-to-device bandwidth 0.8 GB/s
""",
    "xid79-power": r"""
GPU fell off the bus under load, dmesg Xid 79

my PC restarts when I start training with two RTX 3090

Xid 79 GPU has fallen off the bus RTX 4090

workstation powers off during multi-GPU training

GPU has fallen off the bus during training, power supply replaced and fixed
""",
    "ecc": r"""
uncorrectable ECC error encountered → GPU needs reset

RuntimeError: CUDA error: uncorrectable ECC error encountered on Tesla V100

nvidia-smi reports pending row remapping; ECC errors on GPU 5

Xid 63/64 row remapping failure on A100

CUDA error 214: uncorrectable ECC error
""",
    "no-driver": r"""
torch: Found no NVIDIA driver; nvidia-smi command missing; RTX 3080 on Fedora 39

Windows 10 reinstalled, GTX 1070, only Microsoft Basic Display Adapter; nvidia-smi is not recognized as an internal or
external command

Nvidia driver missing on a new EC2 g4dn instance: Found no NVIDIA driver on your system

bash: nvidia-smi: command not found
torch.cuda.is_available() -> False
OS: Ubuntu 20.04
GPU: Tesla T4

collect_env reports
PyTorch version: 2.2.0+cu121
Is debug build: False
CUDA used to build PyTorch: 12.1
Is CUDA available: False
GPU models and configuration: Could not collect
Nvidia driver version: Could not collect
""",
    "kernel-module-missing": r"""
nvidia module missing for kernel 6.9.3 after pacman -Syu, nvidia-smi fails to talk to driver

nvidia-smi has failed because it couldn't communicate with the NVIDIA driver (Ubuntu, kernel auto-updated)

NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver
uname -r: 5.15.0-107-generic
dkms status: nvidia, 535.171.04, 5.15.0-106-generic, x86_64: installed

After rebooting into a new kernel my GPU is not recognised; nvidia-smi fails to communicate with driver

GPU gone after dist-upgrade: nvidia-smi couldn't communicate with the NVIDIA driver, uname -r 6.11.0-9-generic
""",
    "driver-library-mismatch": r"""
k8s node: Failed to initialize NVML: Driver/library version mismatch

NVML version 560.35 vs kernel module 555.42: driver/library version mismatch

nvidia-smi 提示 Driver/library version mismatch，昨天自动更新了驱动

Failed to initialize NVML: Driver/library version mismatch after `apt upgrade` without reboot

nvidia-smi broken on GPU node since last night's apt upgrade: NVML: Driver/library version mismatch, reboot fixes it
""",
    "nouveau-loaded": r"""
nouveau driver loaded instead of nvidia (lsmod), CUDA unavailable

系统加载的是nouveau驱动，nvidia-smi不能用

nouveau 2170880 3 - Live; nvidia driver not loading because nouveau is blocking

lspci -k: Kernel driver in use: nouveau for my RTX 2080 Ti

driver installer complains that the Nouveau kernel driver is currently in use by your system
""",
    "uvm-not-loaded": r"""
/dev/nvidia-uvm doesn't exist → CUDA_ERROR_UNKNOWN

nvidia-modprobe -u needed after each boot or CUDA returns unknown error; nvidia_uvm not loaded

modprobe: ERROR: could not insert 'nvidia_uvm'; nvidia-smi works but cuInit fails

/dev/nvidia-uvm missing after boot, only /dev/nvidia0 and /dev/nvidiactl exist; cuInit fails with 999

CUDA fails until deviceQuery is run as root once, because nvidia_uvm module isn't loaded at boot
""",
    "suspend-resume": r"""
CUDA breaks after waking from sleep on Pop!_OS 22.04

Process using GPU during suspend; afterwards RuntimeError: CUDA unknown error

Every time my laptop comes back from suspend PyTorch loses CUDA: cuda unknown error

挂起恢复之后CUDA unknown error

RuntimeError: CUDA error: unknown error once the laptop lid has been closed and opened again
""",
    "container-no-gpu-flag": r"""
GPU not visible in container: `docker run ubuntu-torch python train.py` → Found no NVIDIA driver on your system

nvidia-smi works on host; in docker: torch.cuda.is_available() == False, no --gpus flag was passed

podman run without --device nvidia.com/gpu=all: torch.cuda.is_available() False

docker run --rm -it --shm-size=8g nvcr.io/nvidia/pytorch:23.10-py3
WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.

docker-compose service has no deploy.resources GPU reservation; torch inside: Found no NVIDIA driver on your system
other: container
""",
    "container-toolkit-missing": r"""
docker compose up: Error response from daemon: could not select device driver "nvidia" with capabilities: [[gpu]]

nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file

docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].
ERRO[0000] error waiting for container

OCI runtime create failed: unable to start container: exec: "nvidia-container-runtime": executable file not found in
$PATH

docker run --gpus all fails: could not select device driver "" with capabilities: [[gpu]] on Ubuntu 22.04
""",
    "container-cgroup": r"""
pytorch in docker randomly reports NVML: Unknown Error after daemon-reload / apt update on host

nvidia-smi in container: Failed to initialize NVML: Unknown Error (host fine). native.cgroupdriver=systemd

GPU vanishes from a running pod: 'Failed to initialize NVML: Unknown Error', works again after recreating the pod

long running docker container loses CUDA with cgroup v2 / systemd cgroup driver

Failed to initialize NVML: Unknown Error in docker after a few hours, container restart helps
""",
    "wsl-driver": r"""
WSL: nvidia-smi OK, torch says no CUDA GPUs are available, /usr/lib/wsl/lib not in LD_LIBRARY_PATH

WSL2 Ubuntu: cuda toolkit from ubuntu repo overwrote libcuda, cuInit = 100 no device

WSL2 nvidia-smi works, torch: CUDA driver initialization failed, /usr/lib/x86_64-linux-gnu/libcuda.so.1 shadows
/usr/lib/wsl/lib

In WSL: RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 500: named symbol not found

WSL2: torch.cuda.is_available() False after I apt-installed cuda (which brought a Linux driver) inside Ubuntu
""",
    "fabric-manager": r"""
cudaErrorSystemNotReady on HGX H100 after reboot

Error 802 system not yet initialized

DGX A100: CUDA initialization: Unexpected error from cudaGetDeviceCount()... Error 802: system not yet initialized

H200 SXM node: nvidia-fabricmanager not running, torch.cuda.is_available() False

8xH100 server: cuInit returns 802
""",
    "compute-mode": r"""
Exclusive compute mode: CUDA error: all CUDA-capable devices are busy or unavailable when starting 2 workers

CUDA error 46

RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable

nvidia-smi -q: Compute Mode : Exclusive_Process. Second job: all CUDA-capable devices are busy

cuda runtime error (46) : all CUDA-capable devices are busy or unavailable at /pytorch/aten/src/THC/THCGeneral.cpp:50
""",
    "mig": r"""
only the first MIG slice is visible in PyTorch (A100 3g.20gb x2)

MIG 1g.10gb on H100: NCCL/torch cannot use two MIG devices in one process, device_count is 1

A100 in MIG mode: only 1 visible GPU per process, DDP over 3 slices impossible

CUDA_VISIBLE_DEVICES=MIG-GPU-aaaaaaaa/1/0: torch.cuda.is_available() False

torch only sees one device of the seven MIG instances on our A100
""",
    "driver-too-old": r"""
CUDA 12.8 wheel with driver 472.12 on Windows 10: torch.cuda.is_available() False
PyTorch version: 2.7.0+cu128

NVIDIA driver is too old, please update (found version 12040) for torch 2.9+cu130

CUDA error 35 at model.to('cuda')

The NVIDIA driver on your system is too old (found version 9010)

GPU 0: Tesla V100-SXM2-16GB
Nvidia driver version: 418.87.00
PyTorch version: 1.13.1+cu117
Is CUDA available: False
""",
    "forward-compat": r"""
Host driver 470, image nvcr.io/nvidia/pytorch:23.05-py3, GeForce GTX 1080 Ti: cudaErrorCompatNotSupportedOnDevice

torch.cuda.is_available(): UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 804:
forward compatibility was attempted on non supported HW (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:108.)
in NGC container

container image CUDA 12.6 on host driver 535: Error 804

CUDA forward compatibility error on GeForce RTX 2080 in docker, host driver 510

RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling
NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on non supported
HW
""",
    "library-shadowing": r"""
torch import picks /usr/local/cuda/lib64/libcublasLt.so.12 over the pip one → symbol error: undefined symbol:
cublasLtMatmulDescCreate

cuDNN version mismatch: compiled 8.9, runtime 8.6 from conda cudatoolkit

Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8 version mismatch;
LD_LIBRARY_PATH=/usr/local/cuda-11.2/lib64:/usr/lib

RuntimeError: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH

ImportError: /usr/local/cuda/lib64/libcusolver.so.11: undefined symbol: cusparseCreateCsr (torch 2.1.0+cu121)
""",
}
CASES = [(name, report.strip()) for name, block in REPORTS.items() for report in block.split("\n\n")]


@pytest.mark.parametrize(("name", "report"), CASES, ids=[f"{name}-{report[:24]}" for name, report in CASES])
def test_cause(name, report):
    result = root_cause.judge(read(report), registry.all_rules())
    assert not result.crashed
    assert (result.root_cause.name if result.root_cause else "healthy") == name
