"""DR220 driver-library-missing: the kernel module is there, but not the library through which programs reach it."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import cuda_works, in_container, known, system
from flatout.machine.machine_facts import Facts

# The loader finds no library, or finds one that is none.
NVML_GONE = "nvml-library-not-found"
CUDA_GONE = "libcuda-not-found"


def check(facts: Facts) -> Finding | None:
    if system(facts) != "Linux" or facts.system.wsl is True or cuda_works(facts):
        return None
    nodes = [node for node in known(facts.driver.device_nodes) or [] if node.startswith("/dev/nvidia")]
    if known(facts.driver.kernel_version) is None or not nodes:
        return None  # without its kernel half the driver is missing as a whole
    cuda = facts.cuda.init_code
    missing = []
    if facts.driver.nvml_error == NVML_GONE:
        missing.append("libnvidia-ml.so.1")
    if isinstance(cuda, Missing) and cuda.reason == CUDA_GONE:
        missing.append("libcuda.so.1")
    if not missing:
        return None
    steps = [Fix(text="capabilities"), Fix(command="docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE")]
    if not in_container(facts):
        steps = [Fix(text="reinstall"), Fix(command="ldconfig -p | grep -E 'libcuda|libnvidia-ml'")]
    return RULE.found(*steps, Fix(text="check"), libraries=missing, kernel_version=facts.driver.kernel_version)


RULE = Rule(
    code="DR220",
    name="driver-library-missing",
    layer=Layer.DRIVER,
    check=check,
    explains=("no-driver", "driver-not-answering", "cuda-start-failed", "cuda-libraries-missing", "container-cgroup"),
)
