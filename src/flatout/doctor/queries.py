"""Questions that several rules ask of the facts. Each answers None or False where the facts do not say."""

from __future__ import annotations

import re
from typing import TypeVar

from flatout.base.records import Missing
from flatout.machine import cards, compatibility, visible
from flatout.machine.machine_facts import Facts, Gpu, PciDevice, Symptom

T = TypeVar("T")


def known(value: T | Missing) -> T | None:
    """The value, or None where it is missing."""
    return None if isinstance(value, Missing) else value


def symptom(facts: Facts, *codes: str) -> Symptom | None:
    """The first recognised message with one of these codes."""
    return next((symptom for symptom in facts.symptoms if symptom.code in codes), None)


def said(facts: Facts, *codes: str) -> str | None:
    """The code of that message: evidence where nothing else is known."""
    found = symptom(facts, *codes)
    return found.code if found else None


def gpus(facts: Facts) -> list[Gpu]:
    return known(facts.driver.gpus) or []


def any_nvidia_gpu(facts: Facts) -> str | None:
    """The name of an NVIDIA card that some witness has seen: the driver, the PCI bus, or torch itself."""
    for gpu in gpus(facts):
        if gpu.vendor == "nvidia":
            return gpu.name
    for device in known(facts.hardware.pci) or []:
        if device.vendor == "nvidia":
            return known(device.name) or "NVIDIA GPU"
    for name in _torch_devices(facts):
        return name
    complaint = symptom(facts, "arch-not-compatible")
    return str(complaint.params.get("card") or "NVIDIA GPU") if complaint else None


# How AMD's cards are called, where nobody says what torch was built for.
OF_AMD = re.compile(r"\b(amd|radeon|instinct|gfx\d+)\b", re.IGNORECASE)


def _torch_devices(facts: Facts) -> list[str]:
    """NVIDIA's cards by torch's own word: to a ROCm build AMD's are devices of CUDA too."""
    if known(facts.torch.hip) not in (None, "none"):
        return []
    return [name for name in known(facts.torch.devices) or [] if not OF_AMD.search(name)]


def capability(facts: Facts) -> str | None:
    """Compute capability of the card that matters: as torch complains, the driver or torch says, else by its name."""
    complaint = symptom(facts, "arch-not-compatible")
    if complaint and "capability" in complaint.params:
        return compatibility.capability_of_arch(str(complaint.params["capability"]))
    for gpu in gpus(facts):
        if gpu.vendor == "nvidia":
            return known(gpu.capability) or cards.capability_of(gpu.name)
    if known(facts.torch.devices) is None or _torch_devices(facts):
        for value in known(facts.torch.capabilities) or []:
            return value
    name = any_nvidia_gpu(facts)
    return cards.capability_of(name) if name else None


def error_code(facts: Facts) -> int | None:
    """The CUDA error that starting CUDA gave, whoever saw it."""
    code = known(facts.cuda.init_code)
    if code:
        return code
    return known(facts.torch.error_code)


def system(facts: Facts) -> str:
    """Linux where nothing says otherwise: most pastes come from there, and WSL is Linux."""
    return known(facts.system.name) or "Linux"


# -- hardware and driver --------------------------------------------------------------------------------------------

# The kernel module does not answer: what nvidia-smi and NVML say of it, in people's own words.
DRIVER_SILENT = ("smi-failed", "smi-not-found", "nvml-version-mismatch", "found-no-driver", "nvml-unknown-error")

# CUDA did not start, whatever the reason.
CUDA_SILENT = ("cuda-not-available", "no-cuda-gpus", "found-no-driver")

# What a program gets long after CUDA has started: they say nothing of its start.
RUNNING_ERRORS = frozenset({1, 2, 98, 200, 209, 214, 218, 220, 222, 700, 702, 710, 716, 719})

SLOW_REPORTS = ("low-utilisation", "slow-after-update", "slower-over-time", "slow-when-display-off", "power-capped")

FALLEN_OFF = 79  # Xid: "GPU has fallen off the bus"
GPU_LOST = "nvml-gpu-lost"

# cudaErrorUnknown: 999 today, 30 before CUDA 10.1; 99 in some reports; 304 where the driver's own call failed.
UNKNOWN_ERRORS = frozenset({999, 30, 99, 304})


def in_container(facts: Facts) -> bool:
    return known(facts.system.container) not in (None, "none")


def linux_host(facts: Facts) -> bool:
    """Where a kernel module can be loaded: neither Windows nor WSL (which has the driver of Windows) nor a container."""
    return system(facts) == "Linux" and facts.system.wsl is not True and not in_container(facts)


def on_bus(facts: Facts, vendor: str = "nvidia") -> PciDevice | None:
    return next((device for device in known(facts.hardware.pci) or [] if device.vendor == vendor), None)


def bus_without_nvidia(facts: Facts) -> bool:
    """Whether somebody looked at the whole bus and saw no NVIDIA card; a paste names only the cards it speaks of, and WSL's
    own bus has none of the cards of Windows."""
    looked = facts.source == "probed" and known(facts.hardware.pci) is not None and facts.system.wsl is not True
    return looked and on_bus(facts) is None


def modules(facts: Facts) -> set[str] | None:
    """Names of the loaded kernel modules, as lsmod writes them."""
    names = known(facts.driver.modules)
    return None if names is None else {name.replace("-", "_") for name in names}


def driver_answers(facts: Facts) -> bool | None:
    """Whether the NVIDIA kernel module answers NVML or nvidia-smi; None where nobody asked."""
    driver = facts.driver
    if driver.nvml_error == "none" or driver.smi == "ok":
        return True
    if known(driver.nvml_error) or known(driver.smi) or symptom(facts, *DRIVER_SILENT):
        return False
    return True if known(driver.version) and gpus(facts) else None


def cuda_codes(facts: Facts) -> set[int]:
    """Every CUDA error that anybody reports."""
    named = [item.params.get("code") for item in facts.symptoms if item.code == "cuda-error"]
    codes = {known(facts.cuda.init_code), known(facts.torch.error_code), *named}
    return {code for code in codes if isinstance(code, int) and code}


def cuda_works(facts: Facts) -> bool:
    """Somebody saw it work, and nobody saw it fail: a paste may tell of both, before and after."""
    if cuda_codes(facts) - RUNNING_ERRORS or symptom(facts, *CUDA_SILENT):
        return False
    seen = facts.torch.available is True or facts.torch.kernel == "ok"
    return seen or (facts.cuda.init_code == 0 and (known(facts.cuda.device_count) or 0) > 0)


def cuda_fails(facts: Facts) -> bool:
    """CUDA was asked and gave nothing; a torch without CUDA says False for a reason of its own."""
    if cuda_codes(facts) - RUNNING_ERRORS or facts.cuda.device_count == 0 or symptom(facts, *CUDA_SILENT):
        return True
    return facts.torch.available is False and facts.torch.cuda != "none"


def busy(gpu: Gpu) -> bool:
    """At work, so that clocks and link are what the card can give; a desktop's few percent are not work, and neither is the
    second before this one, which the percentage still shows."""
    load = 0 if "GPU_IDLE" in events(gpu) else known(gpu.utilisation) or 0
    awake = known(gpu.clock_events) is not None and known(gpu.pstate) in ("P0", "P1", "P2", "P3")
    return load >= 80 or (load >= 30 and awake)


def events(gpu: Gpu) -> set[str]:
    """Why the clocks are held back, by the names of `data/drivers.toml`."""
    return {name.upper() for name in known(gpu.clock_events) or []}


def lost(facts: Facts) -> bool:
    """Whether a card has fallen off the bus: by the kernel's log, which not everybody may read, or by NVML's own answer."""
    cards = facts.driver.gpus
    asked = [cards] if isinstance(cards, Missing) else [gpu.uuid for gpu in cards]
    told = any(isinstance(answer, Missing) and answer.reason == GPU_LOST for answer in asked)
    return told or facts.driver.nvml_error == GPU_LOST or FALLEN_OFF in xids(facts)


def kernel_error(facts: Facts) -> str | None:
    """How the smallest kernel failed, where CUDA did start and torch saw a card."""
    kernel = known(facts.torch.kernel)
    return None if kernel == "ok" else kernel


def xids(facts: Facts) -> set[int]:
    """Numbers of the driver's own error reports, from the kernel log or from what was pasted."""
    pasted = [item.params.get("number") for item in facts.symptoms if item.code == "xid"]
    return {xid.number for xid in known(facts.driver.xids) or []} | {number for number in pasted if isinstance(number, int)}


# What people report when torch does not use the GPU at all; any of a hundred causes.
GPU_NOT_USED = ("cuda-not-available", "no-cuda-gpus", "torch-not-compiled-with-cuda", "found-no-driver", "cuda-error")


def complains(facts: Facts) -> bool:
    """Whether somebody says that torch does not use the GPU: torch itself, or who pasted."""
    return facts.torch.available is False or symptom(facts, *GPU_NOT_USED) is not None


def works(facts: Facts) -> bool:
    """Whether torch has proved that it uses the GPU, and nobody says otherwise."""
    if known(facts.torch.kernel) is not None:
        return facts.torch.kernel == "ok"
    return facts.torch.available is True and not facts.symptoms


def cuda_error(facts: Facts) -> int | None:
    """The CUDA error that anybody saw, at the start of CUDA or in a pasted message, by its number of today."""
    code = error_code(facts)
    found = symptom(facts, "cuda-error")
    if not code and found:
        code = int(found.params.get("code", 0))
    return compatibility.modern_code(code) if code else None


def nvidia_cards(facts: Facts) -> list[tuple[str, str]]:
    """Name and compute capability of every NVIDIA card whose capability is known or follows from its name."""
    found = [
        (gpu.name, known(gpu.capability) or cards.capability_of(gpu.name)) for gpu in gpus(facts) if gpu.vendor == "nvidia"
    ]
    if not found:
        names, values = _torch_devices(facts), known(facts.torch.capabilities) or []
        found = list(zip(names, values, strict=False)) or [(name, cards.capability_of(name)) for name in names]
    if not found:
        names = [known(device.name) or "" for device in known(facts.hardware.pci) or [] if device.vendor == "nvidia"]
        found = [(name, cards.capability_of(name)) for name in names]
    return [(name, value) for name, value in found if value]


def cpu_build(facts: Facts) -> bool:
    """Whether torch was built for no GPU at all, by its own word or by its version ("2.2.1+cpu", conda's "…_cpu_0")."""
    built_for, version = known(facts.torch.cuda), known(facts.torch.version) or ""
    if built_for is not None:
        return built_for == "none" and known(facts.torch.hip) in (None, "none") and "rocm" not in version
    return "+cpu" in version or "_cpu" in version


def build_cuda(facts: Facts) -> tuple[str, bool] | None:
    """The CUDA that torch was built with, and whether anybody says so; else that of the release's default wheel."""
    built_for, version = known(facts.torch.cuda), known(facts.torch.version)
    if built_for is not None:
        return None if built_for == "none" else (built_for, True)
    if version is None or cpu_build(facts) or "rocm" in version or known(facts.torch.hip) not in (None, "none"):
        return None
    named = compatibility.cuda_of_variant(version)
    if named:
        return named, True
    default = compatibility.default_cuda(version, system(facts))
    return (default, False) if default else None


def arch_list(facts: Facts) -> tuple[list[str], bool] | None:
    """The architectures that torch has code for, and whether that is sure: its own list, or the row of its very wheel."""
    listed = known(facts.torch.arch_list)
    if listed:
        return listed, True
    version, built = known(facts.torch.version), build_cuda(facts)
    if version is None or built is None or known(facts.system.architecture) in ("aarch64", "arm64"):
        return None  # the table is of x86_64 wheels
    row = compatibility.arch_list_of(version, built[0], system(facts))
    official = "+" not in version or "+cu" in version  # a container's or a distribution's own build has a list of its own
    return (row[0], row[1] and built[1] and official) if row else None


# CUDA's libraries by their names in file names and messages. libcuda (nvcuda.dll) is not among them: it is the driver's.
CUDA_LIBRARIES = re.compile(
    r"cudnn|cublas|nccl|(?<!caffe2_)nvrtc|cudart|cufft|curand|cusolver|cusparse|nvjitlink|cupti|nvtx|nvtoolsext|cufile",
    re.IGNORECASE,
)


# -- application ----------------------------------------------------------------------------------------------------

# What already says why a card is slow: then neither the loader nor "unknown" is the answer.
SLOW_CAUSES = (
    "stuck-in-low-clocks",
    "thermal-slowdown",
    "power-capped",
    "pcie-narrow",
    "memory-spill",
    "slow-when-display-off",
    "slow-after-update",
    "slow-storage",
    "memory-grows",
)

# Clocks held back by heat or power, as `data/drivers.toml` names it.
HELD_BACK = frozenset({"SW_THERMAL_SLOWDOWN", "HW_THERMAL_SLOWDOWN", "HW_SLOWDOWN", "HW_POWER_BRAKE_SLOWDOWN"})


def windows_driver(facts: Facts) -> bool:
    """Whether the card is driven by Windows: there, or below WSL."""
    return facts.system.name == "Windows" or facts.system.wsl is True


def slowed(facts: Facts) -> bool:
    """Whether heat, power, the link, a spill or the disk are known to slow the card."""
    return symptom(facts, *SLOW_CAUSES) is not None or any(events(gpu) & HELD_BACK for gpu in gpus(facts))


def number(found: Symptom | None, name: str) -> float | None:
    """A figure that a message carries."""
    value = found.params.get(name) if found else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def gib(count: float | None) -> float | None:
    return None if count is None else round(count / 2**30, 2)


def devices_visible(facts: Facts) -> int | None:
    """How many devices a program sees: by its own count, else by the cards and what the variable leaves of them."""
    counted = known(facts.torch.device_count) or known(facts.cuda.device_count)
    if counted:
        return counted
    slots = visible.slots(gpus(facts), "nvidia")
    left = visible.resolve(facts.application.environment.get(visible.CUDA), slots or None)
    return left.count if left.count and left.decided else None


# -- a finished run -------------------------------------------------------------------------------------------------


def starved_share(facts: Facts) -> float | None:
    """Of the looks in mid-step, those at which the device had run dry; None where nobody looked."""
    lag = facts.application.run.device.lag
    return lag.starved / lag.samples if lag is not None and lag.samples else None


# A device that hardly ever runs dry and is busy nearly all the time: what the host waits for is hidden behind its work.
NEVER_DRY, ALWAYS_BUSY = 0.25, 0.9


def saturated(facts: Facts) -> bool:
    """Whether the device had work all the time, so that nothing on the host's side costs anything. By its busy share; where
    nobody knows it, by a lag that is longer than what the host waits in a step."""
    run, starved = facts.application.run, starved_share(facts)
    lag, busy, step = run.device.lag, run.device.busy, run.step_s
    if lag is None or starved is None or starved >= NEVER_DRY:
        return False
    if busy is not None:
        return busy.share >= ALWAYS_BUSY
    waits = run.shares.get("input", 0.0) + run.shares.get("copy", 0.0)
    return step is not None and lag.mean_s >= waits * step


def tensor_cores(facts: Facts) -> bool:
    """False only for cards that are known to have none (GTX 16xx: capability 7.5 without them)."""
    name = any_nvidia_gpu(facts)
    card = cards.find(name) if name else None
    return card is None or card.tensor_cores is not False
