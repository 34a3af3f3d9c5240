"""Data classes of the facts about a machine, layer by layer: bytes, counts, codes, versions; never a sentence.

Every value that may be unknown is `T | Missing`, and unknown until somebody says otherwise: probes fill in what they
find here, the paste reader what somebody else's tools printed, and rules never see the difference.
"""

from __future__ import annotations

from typing import ClassVar

from flatout.base.records import Missing, Record, Struct, field
from flatout.machine.run_look import RunLook

UNKNOWN = Missing("unknown")


class System(Struct, kw_only=True, omit_defaults=True):
    name: str | Missing = UNKNOWN  # Linux, Windows, Darwin
    release: str | Missing = UNKNOWN  # of the kernel, or of Windows ("11")
    distribution: str | Missing = UNKNOWN  # "Ubuntu 22.04.4 LTS"
    architecture: str | Missing = UNKNOWN  # x86_64, aarch64, AMD64, arm64
    wsl: bool | Missing = UNKNOWN
    container: str | Missing = UNKNOWN  # "docker", "podman", "kubernetes", "lxc", "other", or "none"


class Processor(Struct, kw_only=True, omit_defaults=True):
    cores: int | Missing = UNKNOWN  # logical cores of the machine
    usable: float | Missing = UNKNOWN  # what this process may use: affinity and container quota taken into account
    usable_reason: str = "all"  # "all", "affinity" or "quota"
    model: str | Missing = UNKNOWN


class HostMemory(Struct, kw_only=True, omit_defaults=True):
    total_bytes: int | Missing = UNKNOWN
    available_bytes: int | Missing = UNKNOWN
    limit_bytes: int | Missing = UNKNOWN  # a container's cap


class Interpreter(Struct, kw_only=True, omit_defaults=True):
    path: str | Missing = UNKNOWN
    version: str | Missing = UNKNOWN
    bits: int | Missing = UNKNOWN
    environment: str | Missing = UNKNOWN  # "venv", "conda", "system"


# -- hardware ------------------------------------------------------------------------------------------------------


class PciDevice(Struct, kw_only=True, omit_defaults=True):
    """A display or accelerator device on the bus, whether or not a driver knows it."""

    address: str | Missing = UNKNOWN  # 0000:01:00.0
    vendor: str  # nvidia, amd, intel, apple, other
    vendor_id: str | Missing = UNKNOWN  # 10de
    device_id: str | Missing = UNKNOWN
    name: str | Missing = UNKNOWN
    kind: str = "unknown"  # discrete, integrated, unknown
    kernel_driver: str | Missing = UNKNOWN  # nvidia, nouveau, vfio-pci, amdgpu, i915; "none" where unbound
    link_width: int | Missing = UNKNOWN
    link_width_max: int | Missing = UNKNOWN
    link_gts: float | Missing = UNKNOWN
    link_gts_max: float | Missing = UNKNOWN
    power_state: str | Missing = UNKNOWN  # D0, D3cold


class Hardware(Struct, kw_only=True, omit_defaults=True):
    pci: list[PciDevice] | Missing = UNKNOWN
    laptop: bool | Missing = UNKNOWN
    on_battery: bool | Missing = UNKNOWN
    gpu_switch: str | Missing = UNKNOWN  # "eco"/"integrated" (the discrete card is off), "hybrid", "discrete"


# -- driver --------------------------------------------------------------------------------------------------------


class GpuProcess(Struct, kw_only=True, omit_defaults=True):
    pid: int | Missing = UNKNOWN
    name: str | Missing = UNKNOWN
    memory_bytes: int | Missing = UNKNOWN


class Gpu(Struct, kw_only=True, omit_defaults=True):
    """One card as its driver describes it."""

    index: int
    name: str
    vendor: str = "nvidia"
    uuid: str | Missing = UNKNOWN
    pci_bus_id: str | Missing = UNKNOWN
    memory_total_bytes: int | Missing = UNKNOWN
    memory_free_bytes: int | Missing = UNKNOWN
    capability: str | Missing = UNKNOWN  # "8.9"; for AMD "gfx1100"
    utilisation: int | Missing = UNKNOWN  # percent
    temperature_c: int | Missing = UNKNOWN
    power_draw_w: float | Missing = UNKNOWN
    power_limit_w: float | Missing = UNKNOWN
    power_limit_default_w: float | Missing = UNKNOWN
    power_limit_max_w: float | Missing = UNKNOWN
    pstate: str | Missing = UNKNOWN  # P0 (fastest) to P12
    sm_clock_mhz: int | Missing = UNKNOWN
    sm_clock_max_mhz: int | Missing = UNKNOWN
    clock_events: list[str] | Missing = UNKNOWN  # reasons active now, as `data/drivers.toml` names them
    link_width: int | Missing = UNKNOWN
    link_width_max: int | Missing = UNKNOWN
    link_generation: int | Missing = UNKNOWN
    link_generation_max: int | Missing = UNKNOWN
    ecc_uncorrected: int | Missing = UNKNOWN  # since the driver was loaded (volatile)
    ecc_pending: bool | Missing = UNKNOWN  # a row remap or page retirement waits for a reset
    remap_failed: bool | Missing = UNKNOWN
    mig_enabled: bool | Missing = UNKNOWN
    mig_devices: list[str] | Missing = UNKNOWN  # UUIDs
    compute_mode: str | Missing = UNKNOWN  # default, exclusive_process, exclusive_thread, prohibited
    persistence: bool | Missing = UNKNOWN
    driver_model: str | Missing = UNKNOWN  # WDDM, TCC, MCDM (Windows)
    display_active: bool | Missing = UNKNOWN
    processes: list[GpuProcess] | Missing = UNKNOWN


class Xid(Struct, kw_only=True, omit_defaults=True):
    number: int
    pci: str | Missing = UNKNOWN
    text: str = ""


class Driver(Struct, kw_only=True, omit_defaults=True):
    """The NVIDIA driver, from several witnesses that may disagree."""

    version: str | Missing = UNKNOWN  # of the library that programs talk to
    kernel_version: str | Missing = UNKNOWN  # of the loaded kernel module
    cuda: str | Missing = UNKNOWN  # the newest CUDA this driver supports ("12.4")
    nvml_error: str | Missing = UNKNOWN  # "none", or what NVML answers: `nvml-…` as in the catalogue
    smi: str | Missing = UNKNOWN  # ok, not-found, failed, timeout, garbled
    smi_message: str | Missing = UNKNOWN  # its first line where it failed
    modules: list[str] | Missing = UNKNOWN  # loaded: nvidia, nvidia_uvm, nvidia_drm, nouveau, amdgpu …
    module_installed: bool | Missing = UNKNOWN  # a kernel module for *this* kernel is on disk
    device_nodes: list[str] | Missing = UNKNOWN  # /dev/nvidia0, /dev/nvidiactl, /dev/nvidia-uvm, /dev/dxg
    secure_boot: bool | Missing = UNKNOWN
    xids: list[Xid] | Missing = UNKNOWN
    nvswitch: bool | Missing = UNKNOWN
    fabric_manager: str | Missing = UNKNOWN  # active, inactive, not-installed
    gpus: list[Gpu] | Missing = UNKNOWN


# -- CUDA ----------------------------------------------------------------------------------------------------------


class Library(Struct, kw_only=True, omit_defaults=True):
    name: str  # cudnn, cublas, nccl, nvrtc, cuda …
    path: str | Missing = UNKNOWN
    version: str | Missing = UNKNOWN


class Cuda(Struct, kw_only=True, omit_defaults=True):
    init_code: int | Missing = UNKNOWN  # what cuInit returned in a child: 0, 100, 802, 803, 804, 999 …
    device_count: int | Missing = UNKNOWN
    toolkits: list[str] | Missing = UNKNOWN  # versions installed beside the driver
    nvcc: str | Missing = UNKNOWN
    loaded: list[Library] | Missing = UNKNOWN  # mapped into the process that imported torch
    shadowing: list[Library] | Missing = UNKNOWN  # on LD_LIBRARY_PATH or PATH before torch's own
    missing_libraries: list[str] | Missing = UNKNOWN  # that torch wants and cannot load


# -- PyTorch -------------------------------------------------------------------------------------------------------


class Extension(Struct, kw_only=True, omit_defaults=True):
    """A compiled package with an architecture list of its own (flash-attn, xformers, vllm, bitsandbytes …)."""

    name: str
    version: str | Missing = UNKNOWN
    arch_list: list[str] | Missing = UNKNOWN


class Torch(Struct, kw_only=True, omit_defaults=True):
    """torch as the user's own interpreter has it, asked in a child."""

    status: str | Missing = UNKNOWN  # ok, not-installed, import-failed, crashed, timeout
    error: str | Missing = UNKNOWN  # how the import died: last line of the traceback, or the signal
    version: str | Missing = UNKNOWN
    cuda: str | Missing = UNKNOWN  # of the build; "none" for a CPU build
    hip: str | Missing = UNKNOWN  # of the build; "none" likewise
    arch_list: list[str] | Missing = UNKNOWN  # sm_80, sm_90, compute_90 …
    available: bool | Missing = UNKNOWN
    device_count: int | Missing = UNKNOWN
    devices: list[str] | Missing = UNKNOWN  # names
    capabilities: list[str] | Missing = UNKNOWN
    error_code: int | Missing = UNKNOWN  # CUDA's, from torch's own message
    warnings: list[str] | Missing = UNKNOWN
    cudnn: str | Missing = UNKNOWN
    triton: str | Missing = UNKNOWN  # version; Missing("not-installed")
    path: str | Missing = UNKNOWN
    installer: str | Missing = UNKNOWN  # pip, conda, uv …
    others: list[str] | Missing = UNKNOWN  # versions of further torches in reach ("2.7.0+cu128 in another environment")
    kernel: str | Missing = UNKNOWN  # ok, or how the smallest kernel failed
    extensions: list[Extension] | Missing = UNKNOWN


# -- application ---------------------------------------------------------------------------------------------------


class ScriptLook(Struct, kw_only=True, omit_defaults=True):
    """What can be read off a script or configuration without running it."""

    path: str | Missing = UNKNOWN
    workers: int | Missing = UNKNOWN
    pin_memory: bool | Missing = UNKNOWN
    mixed_precision: bool | Missing = UNKNOWN
    device_strings: list[str] | Missing = UNKNOWN
    main_guard: bool | Missing = UNKNOWN
    start_method: str | Missing = UNKNOWN
    sets_visible_devices_late: bool | Missing = UNKNOWN
    lines: dict[str, int] = field(default_factory=dict)  # where each was seen


class Application(Struct, kw_only=True, omit_defaults=True):
    environment: dict[str, str] = field(default_factory=dict)  # the variables that matter, as they are set
    shm_bytes: int | Missing = UNKNOWN  # size of /dev/shm
    shm_free_bytes: int | Missing = UNKNOWN
    disk_free_bytes: int | Missing = UNKNOWN
    open_files_limit: int | Missing = UNKNOWN
    script: ScriptLook = field(default_factory=ScriptLook)  # all unknown where there is none: msgspec has no `| Missing` here
    run: RunLook = field(default_factory=RunLook)


class Symptom(Struct, kw_only=True, omit_defaults=True):
    """A message or report that people paste, recognised: a stable code and its parameters, never the sentence."""

    code: str
    params: dict[str, str | int | float | bool] = field(default_factory=dict)


class Facts(Record):
    """All that is known of one machine, by layer: what `doctor` judges."""

    KIND: ClassVar[str] = "facts"

    source: str = "probed"  # probed, pasted
    system: System = field(default_factory=System)
    processor: Processor = field(default_factory=Processor)
    memory: HostMemory = field(default_factory=HostMemory)
    python: Interpreter = field(default_factory=Interpreter)
    hardware: Hardware = field(default_factory=Hardware)
    driver: Driver = field(default_factory=Driver)
    cuda: Cuda = field(default_factory=Cuda)
    torch: Torch = field(default_factory=Torch)
    application: Application = field(default_factory=Application)
    symptoms: list[Symptom] = field(default_factory=list)


class Machine(Record):
    """The short form that every result carries: which machine it was measured on."""

    KIND: ClassVar[str] = "machine"

    system: System
    processor: Processor
    memory: HostMemory
    python: Interpreter
    driver: str | Missing
    cuda: str | Missing
    gpus: list[Gpu] | Missing
