"""Faults, each a function that breaks a healthy machine as the real one does: all witnesses tell the same story.

Beside each: the kinds of machine that can have it, and the root cause that has to be named. More than one name only where
the facts cannot tell the causes apart.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

from healthy import ASPEED, DATA_CENTRE, GIB, INTEL, NVSWITCH, RADEON, RAPHAEL, Kind

from flatout.base.records import Missing
from flatout.machine import compatibility
from flatout.machine.machine_facts import Extension, Facts, Gpu, GpuProcess, Library, Symptom, Xid
from flatout.machine.versions import at_least, parse

Break = Callable[[Facts, Kind], object]
NO_LIBCUDA = Missing("libcuda-not-found", "OSError: libcuda.so.1: cannot open shared object file")


@dataclass(frozen=True)
class Fault:
    name: str
    does: Break
    causes: tuple[str | None, ...]  # None: nothing but a note
    on: Callable[[Kind], bool]
    notes: tuple[str, ...] = ()  # findings that must be shown, whatever the root cause


def every(kind: Kind) -> bool:
    return True


def bare(kind: Kind) -> bool:
    return kind.bare_linux


def boxed(kind: Kind) -> bool:
    return kind.boxed and not kind.wsl


def windows(kind: Kind) -> bool:
    return kind.system == "Windows"


def wsl(kind: Kind) -> bool:
    return kind.wsl and not kind.boxed


def own_kernel(kind: Kind) -> bool:
    """Linux with the modules and nodes of NVIDIA's in view, in a container or not."""
    return kind.system == "Linux" and not kind.wsl


def whole(kind: Kind) -> bool:
    """Cards that report their load: under MIG they do not."""
    return not kind.mig


def both(*tests: Callable[[Kind], bool]) -> Callable[[Kind], bool]:
    return lambda kind: all(test(kind) for test in tests)


# -- what several faults have in common ----------------------------------------------------------------------------------


def torch_without_gpu(facts: Facts, code: int | None, warning: str = "") -> None:
    torch = facts.torch
    torch.available, torch.device_count, torch.devices, torch.capabilities = False, 0, [], []
    torch.error_code = Missing("none-seen") if code is None else code
    torch.warnings = [warning] if warning else []
    torch.kernel = Missing("no-device")


def cuda_fails(facts: Facts, code: int) -> None:
    """The library is there and starting it gives an error."""
    facts.cuda.init_code, facts.cuda.device_count = code, Missing("not-reported")
    torch_without_gpu(facts, code)


def no_libcuda(facts: Facts) -> None:
    facts.cuda.init_code, facts.cuda.device_count = NO_LIBCUDA, NO_LIBCUDA
    facts.cuda.loaded = [item for item in facts.cuda.loaded if item.name != "cuda"]
    torch_without_gpu(facts, None, "Found no NVIDIA driver on your system.")


def driver_gives_nothing(facts: Facts, error: str, smi: str, version: str | None = None) -> None:
    driver = facts.driver
    why = Missing(error)
    driver.nvml_error, driver.smi, driver.gpus, driver.cuda = error, smi, why, why
    driver.smi_message = "NVIDIA-SMI has failed" if smi == "failed" else Missing("not-found")
    driver.version = version or why


def unloaded(facts: Facts, bound: str = "none") -> None:
    """No module of NVIDIA's in the kernel, so no nodes and no version of it; somebody else, or nobody, has the card."""
    driver = facts.driver
    driver.modules = [name for name in driver.modules if not name.startswith("nvidia")]
    driver.device_nodes, driver.kernel_version = [], Missing("not-found", "/proc/driver/nvidia/version")
    bind(facts, bound)


def bind(facts: Facts, name: str) -> None:
    for device in facts.hardware.pci:
        if device.vendor == "nvidia":
            device.kernel_driver = name


def at_work(gpu: Gpu, **values: object) -> None:
    told = {"utilisation": 99, "pstate": "P2", "clock_events": [], "temperature_c": 70, "sm_clock_mhz": 1400, **values}
    told |= {"sm_clock_max_mhz": 1980, "link_generation": gpu.link_generation_max}
    for name, value in told.items():
        setattr(gpu, name, value)


def another_card(facts: Facts, name: str, capability: str, driver: str) -> None:
    """All cards are of this kind, and the driver one that knows them."""
    for gpu in facts.driver.gpus:
        gpu.name, gpu.capability = name, capability
    for device in facts.hardware.pci:
        if device.vendor == "nvidia":
            device.name = name
    torch = facts.torch
    torch.devices, torch.capabilities = [name] * torch.device_count, [capability] * torch.device_count
    another_driver(facts, driver)


def another_driver(facts: Facts, version: str) -> None:
    facts.driver.version = version
    if isinstance(facts.driver.kernel_version, str):
        facts.driver.kernel_version = version
    facts.driver.cuda = compatibility.cuda_of(version, facts.system.name) or "11.0"


def another_wheel(facts: Facts, torch: str, variant: str) -> None:
    wheel = compatibility.wheel_of(torch, compatibility.cuda_of_variant(variant) or "")
    assert wheel is not None
    facts.torch.version, facts.torch.cuda = f"{torch}.0+{variant}", wheel.cuda
    facts.torch.arch_list = wheel.arch_list(facts.system.name)
    facts.python.version = "3.10.14" if at_least(torch, "2.9") else "3.9.19"


def kernel_fails(facts: Facts, text: str) -> None:
    facts.torch.kernel = text


def not_imported(facts: Facts, status: str, error: str | Missing) -> None:
    torch, why = facts.torch, Missing("torch-not-imported")
    torch.status, torch.error = status, error
    for name in ("version", "cuda", "hip", "arch_list", "available", "device_count", "devices", "capabilities", "kernel"):
        setattr(torch, name, why)
    torch.cudnn, torch.path, torch.warnings = why, why, why
    facts.cuda.loaded = why


# -- hardware ------------------------------------------------------------------------------------------------------------


def no_gpu(facts: Facts, kind: Kind) -> None:
    driver_gives_nothing(facts, "nvml-library-not-found", "not-found")
    if kind.system == "Linux":
        unloaded(facts)
        facts.driver.module_installed = False
    facts.hardware.pci = copy.deepcopy([INTEL] if windows(kind) else [INTEL, ASPEED])
    facts.application.environment.pop("CUDA_VISIBLE_DEVICES", None)
    no_libcuda(facts)


def switched_off(switch: str | Missing, error: str) -> Break:
    def off(facts: Facts, kind: Kind) -> None:
        facts.hardware.pci = [copy.deepcopy(INTEL)]
        facts.hardware.gpu_switch = switch if kind.system == "Linux" else Missing("unknown")
        if error == "none":
            facts.driver.gpus = []
        else:
            driver_gives_nothing(facts, error, "failed", facts.driver.version)
            if kind.system == "Linux":
                unloaded(facts)
                facts.driver.module_installed = True
        cuda_fails(facts, 100)

    return off


def narrow(width: int) -> Break:
    def link(facts: Facts, kind: Kind) -> None:
        gpu = facts.driver.gpus[-1]
        at_work(gpu)
        gpu.link_width, gpu.link_width_max = width, 16

    return link


def hot(facts: Facts, kind: Kind) -> None:
    at_work(facts.driver.gpus[-1], temperature_c=93, clock_events=["SW_THERMAL_SLOWDOWN"], sm_clock_mhz=700)


def half_power(facts: Facts, kind: Kind) -> None:
    gpu = facts.driver.gpus[-1]
    gpu.power_limit_default_w = gpu.power_limit_max_w
    gpu.power_limit_w = gpu.power_limit_default_w / 2
    at_work(gpu, clock_events=["SW_POWER_CAP"])


def power_brake(facts: Facts, kind: Kind) -> None:
    at_work(facts.driver.gpus[-1], clock_events=["HW_SLOWDOWN", "HW_POWER_BRAKE_SLOWDOWN"], sm_clock_mhz=500)


def stuck_clocks(facts: Facts, kind: Kind) -> None:
    at_work(facts.driver.gpus[-1], pstate="P8", sm_clock_mhz=210)


def ecc_pending(facts: Facts, kind: Kind) -> None:
    gpu = facts.driver.gpus[-1]
    gpu.ecc_uncorrected, gpu.ecc_pending = 3, True
    facts.driver.xids = [Xid(number=63), Xid(number=94)]


def remap_failed(facts: Facts, kind: Kind) -> None:
    facts.driver.gpus[-1].remap_failed = True
    facts.driver.gpus[-1].ecc_uncorrected = 12


def has_ecc(kind: Kind) -> bool:
    return all(card in (*DATA_CENTRE, *NVSWITCH) for card in kind.cards)


def card_lost(log: bool) -> Break:
    """Fallen off the bus. The driver counts it still; whoever asks gets "GPU is lost"."""

    def lost(facts: Facts, kind: Kind) -> None:
        driver, why = facts.driver, Missing("nvml-gpu-lost", "GPU is lost")
        driver.xids = [Xid(number=79, text="GPU has fallen off the bus.")] if log else Missing("kernel-log-unreadable")
        gone = driver.gpus[0]
        driver.gpus = [
            Gpu(index=0, name="NVIDIA GPU", uuid=why, memory_total_bytes=why, memory_free_bytes=why, capability=why),
            *driver.gpus[1:],
        ]
        if len(driver.gpus) == 1:
            driver.gpus = why
        assert gone.index == 0
        cuda_fails(facts, 999)

    return lost


# -- driver --------------------------------------------------------------------------------------------------------------


def no_driver(facts: Facts, kind: Kind) -> None:
    driver_gives_nothing(facts, "nvml-library-not-found", "not-found")
    bind(facts, "none")
    if kind.system == "Linux":
        unloaded(facts)
        facts.driver.module_installed = False
    no_libcuda(facts)


def nouveau(installed: bool) -> Break:
    def bound(facts: Facts, kind: Kind) -> None:
        error = ("nvml-driver-not-loaded", "failed") if installed else ("nvml-library-not-found", "not-found")
        driver_gives_nothing(facts, *error, facts.driver.version if installed else None)
        unloaded(facts, "nouveau")
        facts.driver.modules = [*facts.driver.modules, "nouveau"]
        facts.driver.module_installed = installed
        if installed:
            facts.driver.secure_boot = False
            cuda_fails(facts, 100)
        else:
            no_libcuda(facts)

    return bound


def kernel_updated(facts: Facts, kind: Kind) -> None:
    driver_gives_nothing(facts, "nvml-driver-not-loaded", "failed", facts.driver.version)
    unloaded(facts)
    facts.driver.module_installed = False
    cuda_fails(facts, 100)


def module_refused(facts: Facts, kind: Kind) -> None:
    kernel_updated(facts, kind)
    facts.driver.module_installed, facts.driver.secure_boot = True, True


def module_not_loaded(facts: Facts, kind: Kind) -> None:
    kernel_updated(facts, kind)
    facts.driver.module_installed, facts.driver.secure_boot = True, False


def driver_updated(facts: Facts, kind: Kind) -> None:
    old = facts.driver.version
    driver_gives_nothing(facts, "nvml-version-mismatch", "failed", "599.10.01")
    facts.driver.kernel_version = old
    cuda_fails(facts, 803)


def without_uvm(facts: Facts, kind: Kind) -> None:
    facts.driver.modules = [name for name in facts.driver.modules if name != "nvidia_uvm"]
    facts.driver.device_nodes = [node for node in facts.driver.device_nodes if "uvm" not in node]
    cuda_fails(facts, 999)


def slept(facts: Facts, kind: Kind) -> None:
    cuda_fails(facts, 999)


def slept_and_said(facts: Facts, kind: Kind) -> None:
    cuda_fails(facts, 999)
    facts.symptoms = [Symptom(code="after-suspend"), Symptom(code="cuda-not-available")]


def without_flag(facts: Facts, kind: Kind) -> None:
    driver_gives_nothing(facts, "nvml-library-not-found", "not-found")
    facts.driver.device_nodes = []
    facts.application.environment.pop("CUDA_VISIBLE_DEVICES", None)
    no_libcuda(facts)


def lost_its_devices(code: int) -> Break:
    def lost(facts: Facts, kind: Kind) -> None:
        driver_gives_nothing(facts, "nvml-unknown-error", "failed")
        cuda_fails(facts, code)

    return lost


def wsl_without_windows_driver(dxg: bool) -> Break:
    def without(facts: Facts, kind: Kind) -> None:
        driver_gives_nothing(facts, "nvml-library-not-found", "not-found")
        facts.driver.device_nodes = ["/dev/dxg"] if dxg else []
        no_libcuda(facts)

    return without


def linux_driver_in_wsl(facts: Facts, kind: Kind) -> None:
    driver_gives_nothing(facts, "nvml-driver-not-loaded", "failed", "550.144.03")
    facts.cuda.loaded = [Library(name="cuda", path="/usr/lib/x86_64-linux-gnu/libcuda.so.1", version="550.144.03")]
    cuda_fails(facts, 100)


def fabric_manager_down(state: str) -> Break:
    def down(facts: Facts, kind: Kind) -> None:
        facts.driver.fabric_manager = state
        cuda_fails(facts, 802)

    return down


def exclusive(facts: Facts, kind: Kind) -> None:
    """The cards are counted; only the first to use one learns that it is taken."""
    for gpu in facts.driver.gpus:
        gpu.compute_mode, gpu.processes = "exclusive_process", [GpuProcess(pid=99, name="python", memory_bytes=GIB)]
        gpu.memory_free_bytes = gpu.memory_total_bytes - GIB
    kernel_fails(facts, "AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable")


def prohibited(facts: Facts, kind: Kind) -> None:
    for gpu in facts.driver.gpus:
        gpu.compute_mode = "prohibited"
    cuda_fails(facts, 100)


def mig_without_instances(facts: Facts, kind: Kind) -> None:
    for gpu in facts.driver.gpus:
        gpu.mig_enabled, gpu.mig_devices = True, []
    facts.application.environment.pop("CUDA_VISIBLE_DEVICES", None)
    cuda_fails(facts, 100)


def mig_anew(facts: Facts, kind: Kind) -> None:
    facts.application.environment["CUDA_VISIBLE_DEVICES"] = "MIG-99999999-0000-0000-0000-000000000000"
    cuda_fails(facts, 100)


def driver_hangs(facts: Facts, kind: Kind) -> None:
    driver_gives_nothing(facts, "probe-timeout", "timeout")
    facts.cuda.init_code = facts.cuda.device_count = Missing("probe-timeout", "cuInit")
    not_imported(facts, "timeout", "devices: time limit")


def driver_knows_no_card(version: str, name: str, capability: str) -> Break:
    """A driver too new or too old for the card loads, and finds nothing to drive."""

    def unknown(facts: Facts, kind: Kind) -> None:
        another_card(facts, name, capability, version)
        facts.driver.gpus = []
        facts.driver.device_nodes = ["/dev/nvidiactl"] if kind.system == "Linux" else facts.driver.device_nodes
        facts.application.environment.pop("CUDA_VISIBLE_DEVICES", None)
        torch, variant = ("2.8", "cu128") if parse(capability) >= (12, 0) else ("2.8", "cu126")
        another_wheel(facts, torch, variant)
        cuda_fails(facts, 100)

    return unknown


def module_knows_no_card(facts: Facts, kind: Kind) -> None:
    """A driver that has dropped every card here: the module finds nothing to drive and does not stay."""
    another_card(facts, "NVIDIA GeForce GTX 1080 Ti", "6.1", "590.48.01")
    another_wheel(facts, "2.8", "cu126")
    module_not_loaded(facts, kind)


def library_missing(facts: Facts, kind: Kind) -> None:
    driver_gives_nothing(facts, "nvml-library-not-found", "not-found")
    facts.application.environment.pop("CUDA_VISIBLE_DEVICES", None)
    no_libcuda(facts)


def gsp_timeout(facts: Facts, kind: Kind) -> None:
    facts.driver.xids = [Xid(number=119, text="Timeout after 45s of waiting for RPC response from GPU0 GSP!")]
    cuda_fails(facts, 999)


def kept_for_guests(facts: Facts, kind: Kind) -> None:
    driver_gives_nothing(facts, "nvml-driver-not-loaded", "failed", facts.driver.version)
    unloaded(facts, "vfio-pci")
    facts.driver.modules = [*facts.driver.modules, "vfio_pci"]
    cuda_fails(facts, 100)


def smi_hangs(facts: Facts, kind: Kind) -> None:
    facts.driver.smi = "timeout"


# -- CUDA ----------------------------------------------------------------------------------------------------------------


def old_driver(facts: Facts, kind: Kind) -> None:
    """One that knows the cards and not the CUDA of the wheel."""
    another_card(
        facts, "NVIDIA GeForce RTX 3090" if not kind.mig else "NVIDIA A100-SXM4-80GB", "8.0" if kind.mig else "8.6", "0"
    )
    another_wheel(facts, "2.8", "cu128")
    another_driver(facts, "472.12" if windows(kind) else "470.256.02")
    torch_without_gpu(facts, 35, "The NVIDIA driver on your system is too old (found version 11040).")


def old_driver_for_13(facts: Facts, kind: Kind) -> None:
    another_card(facts, "NVIDIA A100-SXM4-80GB" if kind.mig else "NVIDIA GeForce RTX 5090", "8.0" if kind.mig else "12.0", "0")
    another_wheel(facts, "2.9", "cu130")
    another_driver(facts, "572.83" if windows(kind) else "570.133.20")
    torch_without_gpu(facts, 35, "The NVIDIA driver on your system is too old (found version 12080).")


def forward_compatibility(facts: Facts, kind: Kind) -> None:
    facts.cuda.loaded = [Library(name="cuda", path="/usr/local/cuda-12.8/compat/libcuda.so.1", version="570.124.06")]
    facts.application.environment["LD_LIBRARY_PATH"] = "/usr/local/cuda/compat:/usr/local/cuda/lib64"
    cuda_fails(facts, 804)


def two_cudnns(facts: Facts, kind: Kind) -> None:
    other = (
        r"C:\Program Files\NVIDIA\CUDNN\v8.9\bin\cudnn64_8.dll" if windows(kind) else "/usr/lib/x86_64-linux-gnu/libcudnn.so.8"
    )
    facts.cuda.loaded = [*facts.cuda.loaded, Library(name="cudnn", path=other, version="8.9.2")]
    kernel_fails(facts, "RuntimeError: cuDNN version mismatch: compiled against 9.1.0, found 8.9.2")


def no_cudnn(facts: Facts, kind: Kind) -> None:
    if windows(kind):
        name = "cudnn_graph64_9.dll"
        error = f'OSError: [WinError 126] The specified module could not be found. Error loading "C:\\venv\\torch\\lib\\{name}"'
    else:
        name = "libcudnn.so.9"
        error = f"ImportError: {name}: cannot open shared object file: No such file or directory"
    not_imported(facts, "import-failed", error)
    facts.cuda.missing_libraries = [name]


def start_fails(facts: Facts, kind: Kind) -> None:
    cuda_fails(facts, 3)


def kernel_dies(text: str) -> Break:
    return lambda facts, kind: kernel_fails(facts, text)


# -- PyTorch -------------------------------------------------------------------------------------------------------------


def cpu_wheel(facts: Facts, kind: Kind) -> None:
    torch = facts.torch
    torch_without_gpu(facts, None)
    torch.version = f"{torch.version.split('+')[0]}" + ("" if torch.installer == "conda" else "+cpu")
    torch.cuda, torch.arch_list, torch.cudnn = "none", [], Missing("not-applicable")
    torch.triton, torch.others = Missing("not-installed", "triton"), []
    facts.cuda.loaded = []


def cpu_wheel_here(facts: Facts, kind: Kind) -> None:
    cpu_wheel(facts, kind)
    facts.torch.others = ["2.9.1+cu128 in /home/u/miniconda3/envs/ml"]


def wheel_before_blackwell(torch: str, variant: str) -> Break:
    def older(facts: Facts, kind: Kind) -> None:
        another_card(facts, "NVIDIA GeForce RTX 5080", "12.0", "581.29" if windows(kind) else "580.95.05")
        another_wheel(facts, torch, variant)
        facts.torch.warnings = [
            "NVIDIA GeForce RTX 5080 with CUDA capability sm_120 is not compatible with the current PyTorch"
        ]
        kernel_fails(facts, "RuntimeError: CUDA error: no kernel image is available for execution on the device")

    return older


def wheel_after_pascal(torch: str, variant: str) -> Break:
    def newer(facts: Facts, kind: Kind) -> None:
        another_card(facts, "NVIDIA GeForce GTX 1080 Ti", "6.1", "581.29" if windows(kind) else "580.95.05")
        another_wheel(facts, torch, variant)
        kernel_fails(facts, "AcceleratorError: CUDA error: no kernel image is available for execution on the device")

    return newer


def extension_without_the_card(facts: Facts, kind: Kind) -> None:
    another_card(facts, "NVIDIA GeForce RTX 5090", "12.0", "581.29" if windows(kind) else "580.95.05")
    another_wheel(facts, "2.8", "cu128")
    facts.torch.extensions = [Extension(name="flash-attn", version="2.7.4", arch_list=["sm_80", "sm_90"])]


def torch_missing(facts: Facts, kind: Kind) -> None:
    not_imported(facts, "not-installed", Missing("not-applicable"))
    facts.torch.others = []


def torch_elsewhere(facts: Facts, kind: Kind) -> None:
    torch_missing(facts, kind)
    facts.torch.others = ["2.9.1+cu128 in /home/u/miniconda3/envs/ml"]


def torch_missing_on_new_python(facts: Facts, kind: Kind) -> None:
    torch_missing(facts, kind)
    facts.python.version = "3.19.0"


def torch_missing_with_index(facts: Facts, kind: Kind) -> None:
    torch_missing(facts, kind)
    facts.application.environment["PIP_INDEX_URL"] = "https://download.pytorch.org/whl/cu127"


def import_dies(status: str, error: str) -> Break:
    return lambda facts, kind: not_imported(facts, status, error)


def rocm_build(facts: Facts, kind: Kind) -> None:
    torch_without_gpu(facts, None)
    facts.torch.version, facts.torch.cuda, facts.torch.hip = "2.9.1+rocm6.4", "none", "6.4.43482"
    facts.torch.arch_list = ["gfx1030", "gfx1100"]


def triton_wanted(facts: Facts, kind: Kind) -> None:
    facts.torch.triton = Missing("not-installed", "triton")
    facts.symptoms = [Symptom(code="triton-missing")]
    another_card(facts, "NVIDIA GeForce RTX 3060", "8.6", "581.29")
    another_wheel(facts, "2.8", "cu128")


def triton_on_pascal(facts: Facts, kind: Kind) -> None:
    wheel_after_pascal("2.8", "cu126")(facts, kind)
    facts.torch.kernel = "ok"


# -- application ---------------------------------------------------------------------------------------------------------


def hidden(value: str) -> Break:
    def hide(facts: Facts, kind: Kind) -> None:
        facts.application.environment["CUDA_VISIBLE_DEVICES"] = value
        cuda_fails(facts, 100)

    return hide


def set_too_late(facts: Facts, kind: Kind) -> None:
    facts.application.script.sets_visible_devices_late = True
    facts.application.script.lines = {"sets_visible_devices_late": 20, "cuda_started": 4}


def card_that_is_not_there(facts: Facts, kind: Kind) -> None:
    facts.application.script.device_strings = ["cuda:9"]


def no_workers(facts: Facts, kind: Kind) -> None:
    facts.application.script.workers = 0


def no_workers_and_idle(facts: Facts, kind: Kind) -> None:
    with_symptom("low-utilisation", percent=20)(facts, kind)
    facts.application.script.workers = 0


def without_guard(facts: Facts, kind: Kind) -> None:
    script = facts.application.script
    script.main_guard, script.workers, script.start_method = False, 2, Missing("not-literal")


def full_precision(facts: Facts, kind: Kind) -> None:
    facts.application.script.mixed_precision = False
    another_card(facts, "NVIDIA A100-SXM4-80GB", "8.0", "581.29" if windows(kind) else "580.95.05")
    another_wheel(facts, "2.8", "cu128")


def pageable(facts: Facts, kind: Kind) -> None:
    facts.application.script.pin_memory = False


def numbered_by_speed(facts: Facts, kind: Kind) -> None:
    facts.driver.gpus[0].name = "NVIDIA GeForce GTX 1650"
    facts.application.environment["CUDA_VISIBLE_DEVICES"] = "1"
    facts.application.environment.pop("CUDA_DEVICE_ORDER", None)
    facts.application.script.device_strings = []
    facts.torch.device_count = facts.cuda.device_count = 1


def small_shm(facts: Facts, kind: Kind) -> None:
    facts.application.shm_bytes = facts.application.shm_free_bytes = 64 << 20
    facts.application.script.workers = 2


def held(share: float) -> Break:
    def hold(facts: Facts, kind: Kind) -> None:
        for gpu in facts.driver.gpus:
            taken = int(share * gpu.memory_total_bytes)
            gpu.processes = [GpuProcess(pid=4242, name="python", memory_bytes=taken)]
            gpu.memory_free_bytes = gpu.memory_total_bytes - taken

    return hold


def held_to_the_last(facts: Facts, kind: Kind) -> None:
    held(0.995)(facts, kind)
    kernel_fails(facts, "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.")


def left_behind(facts: Facts, kind: Kind) -> None:
    """A process has died and its memory has not come back."""
    gpu = facts.driver.gpus[-1]
    gpu.processes, gpu.display_active = [], False
    gpu.memory_free_bytes = gpu.memory_total_bytes // 10


def spilled(facts: Facts, kind: Kind) -> None:
    gpu = facts.driver.gpus[0]
    at_work(gpu)
    another_driver(facts, "581.29" if windows(kind) else "580.95.05")
    gpu.memory_free_bytes = gpu.memory_total_bytes // 100
    gpu.driver_model = "WDDM"


def with_symptom(code: str, **params: object) -> Break:
    def tell(facts: Facts, kind: Kind) -> None:
        facts.symptoms = [Symptom(code=code, params=dict(params))]
        facts.application.shm_bytes = facts.application.shm_free_bytes = 8 * GIB
        facts.processor.usable = 64.0
        if isinstance(facts.application.script.workers, Missing):
            facts.application.script.workers = 2
        for gpu in facts.driver.gpus:  # a card at its limit would be an answer of its own
            gpu.clock_events = [event for event in gpu.clock_events if event == "GPU_IDLE"]

    return tell


FAULTS = (
    Fault("no GPU at all", no_gpu, ("no-gpu",), lambda kind: bare(kind) or windows(kind)),
    Fault(
        "no GPU at all, laptop mode off",
        switched_off("eco", "nvml-driver-not-loaded"),
        ("hybrid-graphics",),
        lambda k: k.laptop,
    ),
    Fault(
        "discrete card vanished",
        switched_off(Missing("unknown"), "nvml-driver-not-loaded"),
        ("hybrid-graphics",),
        lambda k: k.laptop,
    ),
    Fault(
        "discrete card vanished, driver answers",
        switched_off(Missing("unknown"), "none"),
        ("hybrid-graphics",),
        lambda k: k.laptop,
    ),
    Fault("x1 link", narrow(1), ("pcie-link",), whole),
    Fault("x2 link", narrow(2), ("pcie-link",), whole),
    Fault("thermal slowdown", hot, ("thermal-throttle",), whole),
    Fault("half the power", half_power, ("power-cap",), whole),
    Fault("power brake", power_brake, ("power-cap",), whole),
    Fault("low clocks", stuck_clocks, ("low-clocks",), whole),
    Fault("pending remap", ecc_pending, ("ecc",), has_ecc),
    Fault("failed remap", remap_failed, ("ecc",), has_ecc),
    Fault("Xid 79", card_lost(log=True), ("xid79-power",), bare),
    Fault("card lost, log unreadable", card_lost(log=False), ("xid79-power",), lambda kind: bare(kind) or boxed(kind)),
    Fault("no driver", no_driver, ("no-driver",), lambda kind: bare(kind) or windows(kind)),
    Fault("nouveau, never installed", nouveau(installed=False), ("nouveau-loaded",), bare),
    Fault("nouveau, installed", nouveau(installed=True), ("nouveau-loaded",), bare),
    Fault("kernel updated", kernel_updated, ("kernel-module-missing",), bare),
    Fault("module not loaded", module_not_loaded, ("kernel-module-missing",), bare),
    Fault("secure boot", module_refused, ("secure-boot",), bare),
    Fault("driver updated without restart", driver_updated, ("driver-library-mismatch",), own_kernel),
    Fault("nvidia_uvm missing", without_uvm, ("uvm-not-loaded",), own_kernel),
    Fault("after suspend", slept, ("suspend-resume",), lambda kind: bare(kind) or windows(kind)),
    Fault("after suspend, told", slept_and_said, ("suspend-resume",), lambda kind: bare(kind) or windows(kind)),
    Fault("container without --gpus", without_flag, ("container-no-gpu-flag",), boxed),
    # Behind Docker Desktop nothing says whether Windows has a card at all.
    Fault(
        "Docker Desktop without --gpus",
        without_flag,
        (None,),
        lambda kind: kind.boxed and kind.wsl,
        notes=("container-no-gpu-flag",),
    ),
    Fault("daemon-reload", lost_its_devices(100), ("container-cgroup",), boxed),
    Fault("daemon-reload, unknown error", lost_its_devices(999), ("container-cgroup",), boxed),
    Fault("WSL without /dev/dxg", wsl_without_windows_driver(dxg=False), ("wsl-driver",), wsl),
    Fault("WSL without the driver of Windows", wsl_without_windows_driver(dxg=True), ("wsl-driver",), wsl),
    Fault("WSL with a driver of Linux", linux_driver_in_wsl, ("wsl-driver",), wsl),
    Fault("fabric manager stopped", fabric_manager_down("inactive"), ("fabric-manager",), lambda kind: kind.nvswitch),
    Fault("fabric manager missing", fabric_manager_down("not-installed"), ("fabric-manager",), lambda kind: kind.nvswitch),
    Fault("exclusive mode, taken", exclusive, ("compute-mode",), every),
    Fault("prohibited mode", prohibited, ("compute-mode",), every),
    Fault("MIG without instances", mig_without_instances, ("mig",), lambda kind: kind.mig),
    Fault("MIG made anew", mig_anew, ("mig",), lambda kind: kind.mig),
    Fault("driver hangs", driver_hangs, ("driver-not-answering",), bare),
    Fault(
        "driver too new for the card",
        driver_knows_no_card("590.48.01", "NVIDIA GeForce GTX 1080 Ti", "6.1"),
        ("driver-not-answering",),
        both(bare, whole),
    ),
    Fault(
        "driver too old for the card",
        driver_knows_no_card("550.144.03", "NVIDIA GeForce RTX 5090", "12.0"),
        ("driver-not-answering", "driver-too-old"),
        both(bare, whole),
    ),
    Fault("module too new for the card", module_knows_no_card, ("kernel-module-missing",), both(bare, whole)),
    Fault("library missing", library_missing, ("driver-library-missing",), own_kernel),
    Fault("GSP timeout", gsp_timeout, ("gsp-timeout",), own_kernel),
    Fault("kept for virtual machines", kept_for_guests, ("reserved-for-vm",), bare),
    Fault("nvidia-smi hangs", smi_hangs, (None,), every, notes=("smi-unusable",)),
    Fault("old driver, CUDA 12", old_driver, ("driver-too-old",), every),
    Fault("old driver, CUDA 13", old_driver_for_13, ("driver-too-old",), every),
    Fault("804", forward_compatibility, ("forward-compat",), own_kernel),
    Fault("two cuDNNs", two_cudnns, ("library-shadowing",), every),
    Fault("libcudnn missing", no_cudnn, ("cuda-libraries-missing",), every),
    Fault("CUDA start fails", start_fails, ("cuda-start-failed",), lambda kind: not kind.wsl),
    Fault("CUDA start fails in WSL", start_fails, ("wsl-driver",), wsl),
    Fault(
        "kernel fails", kernel_dies("AcceleratorError: CUDA error: unspecified launch failure"), ("cuda-start-failed",), every
    ),
    Fault("kernel is wrong", kernel_dies("wrong-result"), ("cuda-start-failed",), every),
    Fault("kernel crashes", kernel_dies("crashed: SIGSEGV"), ("cuda-start-failed",), every),
    Fault("cpu wheel", cpu_wheel, ("cpu-only-wheel",), every),
    Fault("cpu wheel here, another torch elsewhere", cpu_wheel_here, ("cpu-only-wheel",), every),
    *(
        Fault(f"RTX 50 with {torch}+{variant}", wheel_before_blackwell(torch, variant), ("arch-not-in-wheel",), whole)
        for torch, variant in (("2.6", "cu118"), ("2.5", "cu121"), ("2.6", "cu124"), ("2.7", "cu126"), ("2.7", "cu118"))
    ),
    *(
        Fault(f"Pascal with {torch}+{variant}", wheel_after_pascal(torch, variant), ("arch-dropped",), whole)
        for torch, variant in (("2.9", "cu128"), ("2.10", "cu128"), ("2.11", "cu130"))
    ),
    Fault("flash-attn without the card", extension_without_the_card, ("arch-not-in-extension",), whole),
    Fault("torch missing", torch_missing, ("torch-not-installed",), every),
    Fault("torch elsewhere", torch_elsewhere, ("wrong-environment",), every),
    Fault("torch missing, Python too new", torch_missing_on_new_python, ("python-version-unsupported",), every),
    Fault("torch missing, wrong index", torch_missing_with_index, ("wrong-index-url",), every),
    Fault(
        "import dies",
        import_dies("import-failed", "ImportError: cannot import name 'x' from 'torch'"),
        ("torch-import-broken",),
        every,
    ),
    Fault("import segfaults", import_dies("crashed", "SIGSEGV"), ("torch-import-broken",), every),
    Fault("import hangs", import_dies("timeout", "time limit"), ("torch-import-broken",), every),
    Fault(
        "libomp missing",
        import_dies("import-failed", r'OSError: [WinError 126] not found. Error loading "C:\venv\torch\lib\fbgemm.dll"'),
        ("windows-dll-missing",),
        windows,
    ),
    Fault("ROCm build", rocm_build, ("wrong-vendor-build",), lambda kind: not kind.wsl),
    Fault("Triton wanted", triton_wanted, ("triton-missing-windows",), windows),
    Fault("Triton on Pascal", triton_on_pascal, (None,), whole, notes=("triton-unsupported-card",)),
    *(
        Fault(f"CUDA_VISIBLE_DEVICES={value!r}", hidden(value), ("visible-devices",), every)
        for value in ("", " ", "-1", "9", "9,0", "-1,0", "GPU-99999999", "NoDevFiles", '"0"')
    ),
    Fault("set too late", set_too_late, ("visible-devices",), every),
    Fault("cuda:9", card_that_is_not_there, ("wrong-device-index",), every),
    Fault("workers=0", no_workers, (None,), every, notes=("dataloader-bottleneck",)),
    Fault("workers=0, and the card waits", no_workers_and_idle, ("dataloader-bottleneck",), every),
    Fault("no main guard", without_guard, ("spawn-main-guard",), windows),
    Fault("fp32 on tensor cores", full_precision, (None,), every, notes=("full-precision",)),
    Fault("pageable batches", pageable, (None,), lambda kind: not kind.wsl, notes=("pageable-batches",)),
    Fault("numbered by speed", numbered_by_speed, (None,), lambda kind: kind.name == "workstation", notes=("device-order",)),
    Fault("64 MB of /dev/shm", small_shm, ("shared-memory",), lambda kind: kind.boxed),
    Fault("memory held by another", held(0.95), (None,), both(whole, bare), notes=("memory-held-by-other",)),
    Fault("memory held to the last byte", held_to_the_last, ("memory-held-by-other",), both(whole, bare)),
    Fault("memory left behind", left_behind, ("memory-held-by-other",), both(whole, bare)),
    Fault("spill", spilled, ("sysmem-fallback",), lambda kind: kind.drawn_by_windows),
    Fault("two devices", with_symptom("device-mismatch", first="cuda:0", second="cpu"), ("device-mismatch",), every),
    Fault("pin thread", with_symptom("pin-memory-thread-exited"), ("pin-memory-thread",), every),
    # Where somebody else holds most of the card it is theirs; whether that is the same program nobody says.
    Fault("out of memory", with_symptom("out-of-memory"), ("out-of-memory", "memory-held-by-other"), every),
    Fault(
        "fragmented",
        with_symptom("out-of-memory", tried_bytes=GIB, allocated_bytes=12 * GIB, reserved_bytes=21 * GIB, free_bytes=GIB // 2),
        # With expandable segments there is nothing to fragment.
        ("oom-fragmentation", "out-of-memory", "memory-held-by-other"),
        every,
    ),
    Fault("leak", with_symptom("memory-grows"), ("memory-leak",), every),
    Fault("loss", with_symptom("loss-explodes"), ("exploding-loss",), every),
    Fault("disk", with_symptom("slow-storage"), ("slow-storage",), every),
    Fault("slower and slower", with_symptom("slower-over-time"), ("performance-falling",), every),
    Fault("idle", with_symptom("low-utilisation", percent=25), ("low-utilisation",), every),
    Fault("toolkit missing", with_symptom("docker-no-device-driver"), ("container-toolkit-missing",), every),
    Fault("loader", with_symptom("loader-waits"), ("dataloader-bottleneck",), every),
)


# -- AMD -----------------------------------------------------------------------------------------------------------------


def radeon_fails(facts: Facts) -> None:
    torch_without_gpu(facts, None)


def no_kfd(facts: Facts) -> None:
    facts.driver.device_nodes = []
    radeon_fails(facts)


def cuda_build_on_radeon(facts: Facts) -> None:
    radeon_fails(facts)
    facts.torch.version, facts.torch.cuda, facts.torch.hip = "2.9.1+cu128", "12.8", "none"


def cpu_build_on_radeon(facts: Facts) -> None:
    radeon_fails(facts)
    facts.torch.version, facts.torch.cuda, facts.torch.hip = "2.9.1+cpu", "none", "none"


def integrated_first(facts: Facts) -> None:
    facts.hardware.pci = copy.deepcopy([RADEON, RAPHAEL])
    facts.torch.devices, facts.torch.device_count = ["AMD Radeon Graphics", "AMD Radeon RX 7900 XTX"], 2
    facts.torch.kernel = "RuntimeError: HIP error: invalid device function"


def two_masks(facts: Facts) -> None:
    facts.application.environment = {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}
    radeon_fails(facts)


RADEON_FAULTS = {
    "kfd-missing": no_kfd,
    "wrong-vendor-build": cuda_build_on_radeon,
    "cpu-only-wheel": cpu_build_on_radeon,
    "rocm-igpu": integrated_first,
    "visible-devices": two_masks,
}
