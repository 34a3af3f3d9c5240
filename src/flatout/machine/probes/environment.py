"""The environment variables that decide whether and how the GPU is used."""

from __future__ import annotations

import re

from flatout.machine.machine_facts import Application
from flatout.machine.probe_host import World
from flatout.machine.probes import disk

LONGEST = 1000
# Everything in these families is for the GPU …
GPU_RELATED = re.compile(
    r"CUDA_.*|CUDNN_.*|CUBLAS_.*|NCCL_.*|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|DISABLE_REQUIRE|TF32_OVERRIDE)"
    r"|HIP_.*|ROCR_.*|HSA_.*|AMD_.*|GPU_.*|MIOPEN_.*|PYTORCH_.*|TORCH_.*|TORCHINDUCTOR_.*|TORCHDYNAMO_.*|TRITON_.*"
    r"|__NV_PRIME_RENDER_OFFLOAD|__GLX_VENDOR_LIBRARY_NAME|DRI_PRIME|ZES?_.*|ONEAPI_DEVICE_SELECTOR|XLA_FLAGS"
)
# … and these change what is loaded, or how many processes and threads share the machine.
OTHERS = {
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "VIRTUAL_ENV", "CONDA_PREFIX"),
    *("CONDA_DEFAULT_ENV", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY"),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_JOB_ID", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS"),
}


def application(world: World) -> Application:
    look = disk.application(world)
    look.environment = variables(world)
    return look


def variables(world: World) -> dict[str, str]:
    """As they are set; an empty one matters too: CUDA_VISIBLE_DEVICES= hides every card."""
    wanted = {name: value for name, value in world.environ.items() if gpu_related(name) or name in OTHERS}
    return {name: wanted[name][:LONGEST] for name in sorted(wanted)}


def gpu_related(name: str) -> bool:
    return GPU_RELATED.fullmatch(name) is not None
