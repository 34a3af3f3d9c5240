"""Healthy machines of many kinds, described as the probes would describe them: what the property tests break.

Everything on one machine fits together: the wheel has code for every card, the driver knows the cards and runs the wheel,
the Python has that wheel, and what a program sees is what CUDA_VISIBLE_DEVICES leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from hypothesis import strategies as st

from flatout.base.records import Missing, decode, encode
from flatout.machine import compatibility
from flatout.machine.machine_facts import (
    Application,
    Cuda,
    Driver,
    Extension,
    Facts,
    Gpu,
    GpuProcess,
    Hardware,
    HostMemory,
    Interpreter,
    Library,
    PciDevice,
    Processor,
    ScriptLook,
    System,
    Torch,
    Xid,
)
from flatout.machine.versions import at_least, parse

GIB = 1 << 30


def fresh(facts: Facts) -> Facts:
    """A copy that shares nothing with any other machine: whoever breaks one must not break the next. As from a file."""
    return decode(encode(facts), Facts)


NOT_ASKED, NOT_APPLICABLE = Missing("not-asked"), Missing("not-applicable")


@dataclass(frozen=True)
class Card:
    name: str
    capability: str
    gib: int
    watts: float
    lanes: int = 16
    generation: int = 4


GEFORCE = (
    Card("NVIDIA GeForce GTX 970", "5.2", 4, 145, generation=3),
    Card("NVIDIA GeForce GTX 1060 6GB", "6.1", 6, 120, generation=3),
    Card("NVIDIA GeForce GTX 1080 Ti", "6.1", 11, 250, generation=3),
    Card("NVIDIA GeForce GTX 1650", "7.5", 4, 75, generation=3),
    Card("NVIDIA GeForce RTX 2080 Ti", "7.5", 11, 250, generation=3),
    Card("NVIDIA GeForce RTX 3060", "8.6", 12, 170),
    Card("NVIDIA GeForce RTX 3090", "8.6", 24, 350),
    Card("NVIDIA GeForce RTX 4060", "8.9", 8, 115, lanes=8),
    Card("NVIDIA GeForce RTX 4090", "8.9", 24, 450),
    Card("NVIDIA GeForce RTX 5070 Ti", "12.0", 16, 300, generation=5),
    Card("NVIDIA GeForce RTX 5090", "12.0", 32, 575, generation=5),
)
WORKSTATION = (
    Card("Quadro RTX 6000", "7.5", 24, 260, generation=3),
    Card("NVIDIA RTX A6000", "8.6", 48, 300),
    Card("NVIDIA RTX 6000 Ada Generation", "8.9", 48, 300),
    Card("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0", 96, 600, generation=5),
)
LAPTOP = (
    Card("NVIDIA GeForce GTX 1650 Ti", "7.5", 4, 50, generation=3),
    Card("NVIDIA GeForce RTX 3050 Laptop GPU", "8.6", 4, 60, lanes=8),
    Card("NVIDIA GeForce RTX 4050 Laptop GPU", "8.9", 6, 80, lanes=8),
    Card("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9", 16, 150),
    Card("NVIDIA GeForce RTX 5070 Laptop GPU", "12.0", 8, 100, lanes=8, generation=5),
)
DATA_CENTRE = (
    Card("Tesla P100-PCIE-16GB", "6.0", 16, 250, generation=3),
    Card("Tesla V100-SXM2-32GB", "7.0", 32, 300, generation=3),
    Card("Tesla T4", "7.5", 15, 70, generation=3),
    Card("NVIDIA A10G", "8.6", 23, 300),
    Card("NVIDIA L4", "8.9", 23, 72),
    Card("NVIDIA A100-SXM4-80GB", "8.0", 80, 400),
    Card("NVIDIA H100 80GB HBM3", "9.0", 80, 700, generation=5),
)
NVSWITCH = (
    Card("NVIDIA A100-SXM4-80GB", "8.0", 80, 400),
    Card("NVIDIA H100 80GB HBM3", "9.0", 80, 700, generation=5),
    Card("NVIDIA B200", "10.0", 180, 1000, generation=5),
)
SLICED = tuple(card for card in NVSWITCH if card.capability != "10.0")

DRIVERS_LINUX = (
    *("450.119.03", "470.256.02", "515.105.01", "525.147.05", "535.183.01", "550.144.03", "560.35.03"),
    *("570.133.20", "575.64.03", "580.95.05", "590.48.01", "595.58.03"),
)
DRIVERS_WINDOWS = ("472.12", "516.94", "528.49", "537.58", "552.44", "560.94", "572.83", "576.52", "581.29", "591.44")

DISTRIBUTIONS = (
    *("Ubuntu 22.04.4 LTS", "Ubuntu 24.04.3 LTS", "Debian GNU/Linux 12 (bookworm)", "Fedora Linux 42 (Workstation Edition)"),
    *("Arch Linux", "openSUSE Tumbleweed", "Rocky Linux 9.4 (Blue Onyx)", "NixOS 25.05 (Warbler)", "Linux Mint 22"),
)
PYTHONS = ("3.8.18", "3.9.19", "3.10.14", "3.11.9", "3.12.3", "3.13.1", "3.14.0")

INTEL = PciDevice(
    address="0000:00:02.0",
    vendor="intel",
    vendor_id="8086",
    name="Raptor Lake-S UHD Graphics",
    kind="integrated",
    kernel_driver="i915",
    power_state="D0",
)
RAPHAEL = PciDevice(
    address="0000:0e:00.0", vendor="amd", vendor_id="1002", name="Raphael", kind="integrated", kernel_driver="amdgpu"
)
ASPEED = PciDevice(address="0000:02:00.0", vendor="other", vendor_id="1a03", name="ASPEED Graphics Family", kernel_driver="ast")
HYPER_V = PciDevice(address="7c6e:00:00.0", vendor="other", vendor_id="1414", kernel_driver="dxgkrnl")


@dataclass(frozen=True)
class Kind:
    """A family of machines: where the program runs, and on which cards."""

    name: str
    cards: tuple[Card, ...]
    system: str = "Linux"
    wsl: bool = False
    container: str = "none"
    laptop: bool = False
    most: int = 1
    least: int = 1
    nvswitch: bool = False
    mig: bool = False

    @property
    def bare_linux(self) -> bool:
        """Where the kernel and its modules are this machine's own to see and to repair."""
        return self.system == "Linux" and not self.wsl and self.container == "none"

    @property
    def boxed(self) -> bool:
        return self.container != "none"

    @property
    def drawn_by_windows(self) -> bool:
        return self.system == "Windows" or self.wsl


NVIDIA_KINDS = (
    Kind("desktop", GEFORCE),
    Kind("workstation", WORKSTATION + GEFORCE, least=2, most=3),
    Kind("laptop", LAPTOP, laptop=True),
    Kind("cloud", DATA_CENTRE, most=2),
    Kind("nvswitch", NVSWITCH, least=2, most=4, nvswitch=True),
    Kind("mig", SLICED, mig=True),
    Kind("windows", GEFORCE + WORKSTATION, system="Windows", most=2),
    Kind("windows-laptop", LAPTOP, system="Windows", laptop=True),
    Kind("wsl", GEFORCE + LAPTOP, wsl=True),
    Kind("docker", GEFORCE + DATA_CENTRE, container="docker", most=2),
    Kind("podman", GEFORCE, container="podman"),
    Kind("kubernetes", DATA_CENTRE, container="kubernetes", most=2),
    Kind("docker-desktop", GEFORCE, wsl=True, container="docker"),
)


# -- parts ---------------------------------------------------------------------------------------------------------------


@st.composite
def fitting(draw, kind: Kind) -> tuple[list[Card], str, compatibility.Wheel, str]:
    """Cards, driver, wheel and Python that go together."""
    first = draw(st.sampled_from(kind.cards))
    cards = [first] * draw(st.integers(kind.least, kind.most))
    if len(cards) > 1 and not kind.nvswitch and draw(st.booleans()):
        cards[-1] = draw(st.sampled_from([card for card in kind.cards if together(first, card, kind.system)]))
    driver, wheel = draw(st.sampled_from(together(first, cards[-1], kind.system)))
    python = draw(st.sampled_from([version for version in PYTHONS if compatibility.python_runs(version, wheel.torch)]))
    return cards, driver, wheel, python


WHEELS = [wheel for wheel in compatibility.wheels() if at_least(wheel.torch, "1.13")]


@cache
def together(one: Card, other: Card, system: str) -> list[tuple[str, compatibility.Wheel]]:
    """Drivers that know both cards, each with the wheels that it and they run."""
    drivers = DRIVERS_WINDOWS if system == "Windows" else DRIVERS_LINUX
    return [
        (driver, wheel)
        for driver in drivers
        if knows(driver, one) and knows(driver, other)
        for wheel in WHEELS
        if compatibility.driver_runs(driver, wheel.cuda, system) and all(served(wheel, card, system) for card in (one, other))
    ]


def knows(driver: str, card: Card) -> bool:
    least = compatibility.minimum_driver_of_card(card.capability)
    last = compatibility.last_driver_of_card(card.capability)
    return (least is None or at_least(driver, least)) and (last is None or parse(driver)[0] <= parse(last)[0])


def served(wheel: compatibility.Wheel, card: Card, system: str) -> bool:
    """By machine code of its own: PTX is compiled by new drivers only."""
    codes = [f"sm_{value.replace('.', '')}" for value in wheel.capabilities(system)]
    return bool(codes) and compatibility.serves(codes, card.capability)


@st.composite
def gpu(draw, kind: Kind, card: Card, index: int) -> Gpu:
    """Idle, at work, or a desktop's few percent; under MIG and on WSL the driver says less."""
    at_work, screen = draw(st.booleans()), draw(st.booleans()) and not kind.mig
    total, top = card.gib * GIB, draw(st.sampled_from([1530, 1980, 2520, 3105]))
    processes = [GpuProcess(pid=812, name="Xorg", memory_bytes=210 << 20)] if screen else []
    if at_work:
        hidden = kind.drawn_by_windows
        share = draw(st.sampled_from([0.2, 0.5, 0.7]))
        processes.append(
            GpuProcess(
                pid=4000 + index,
                name=draw(st.sampled_from(["python", "python3.12", "python.exe", "ollama"])),
                memory_bytes=Missing("nvml-not-supported") if hidden else int(share * total),
            )
        )
        used = int(share * total) + (300 << 20)
    else:
        used = 300 << 20
    state = (
        {"utilisation": draw(st.integers(85, 100)), "pstate": draw(st.sampled_from(["P0", "P2"])), "sm_clock_mhz": top - 150}
        if at_work
        else {
            "utilisation": draw(st.sampled_from([0, 1, 12, 40])) if screen else 0,
            "pstate": draw(st.sampled_from(["P8", "P5", "P0"])),
            "sm_clock_mhz": 210,
        }
    )
    events = draw(st.sampled_from([[], ["SW_POWER_CAP"]])) if at_work else ["GPU_IDLE"]
    return Gpu(
        index=index,
        name=card.name,
        uuid=f"GPU-{index:08x}-1111-2222-3333-{draw(st.integers(0, 0xFFFF)):012x}",
        pci_bus_id=f"00000000:{index + 1:02X}:00.0",
        memory_total_bytes=total,
        memory_free_bytes=total - used,
        capability=card.capability,
        temperature_c=draw(st.integers(55, 82)) if at_work else draw(st.integers(28, 50)),
        power_draw_w=card.watts * (0.98 if at_work else 0.1),
        power_limit_w=card.watts * draw(st.sampled_from([1.0, 1.0, 0.8])),
        power_limit_default_w=Missing("nvml-not-supported") if kind.laptop and draw(st.booleans()) else card.watts,
        power_limit_max_w=card.watts * draw(st.sampled_from([1.0, 1.15])),
        sm_clock_max_mhz=top,
        clock_events=events,
        link_width=draw(st.sampled_from([card.lanes, card.lanes // 2])),
        link_width_max=card.lanes,
        link_generation=card.generation if at_work else draw(st.sampled_from([1, card.generation])),
        link_generation_max=card.generation,
        ecc_uncorrected=0 if card in DATA_CENTRE or card in NVSWITCH else Missing("nvml-not-supported"),
        ecc_pending=False,
        remap_failed=False if parse(card.capability) >= (8, 0) else Missing("nvml-not-supported"),
        mig_enabled=kind.mig if card in NVSWITCH else Missing("nvml-not-supported"),
        mig_devices=[f"MIG-{index}{part}000000-aaaa-bbbb-cccc-dddddddddddd" for part in range(3)] if kind.mig else [],
        compute_mode=draw(st.sampled_from(["default", "default", "exclusive_process"])) if not at_work else "default",
        persistence=draw(st.booleans()),
        driver_model=draw(st.sampled_from(["WDDM", "MCDM"])) if kind.system == "Windows" else NOT_APPLICABLE,
        display_active=screen,
        processes=[] if kind.boxed or kind.wsl else processes,
        **(state if not kind.mig else {"pstate": state["pstate"], "sm_clock_mhz": state["sm_clock_mhz"]}),
    )


def bus(kind: Kind, gpus: list[Gpu], integrated: PciDevice | None, asleep: bool) -> list[PciDevice]:
    """Behind WSL there is one device of Microsoft's; Windows gives no addresses and no links."""
    if kind.wsl:
        return [HYPER_V]
    cards = []
    for item in gpus:
        if kind.system == "Windows":
            cards.append(PciDevice(vendor="nvidia", vendor_id="10de", name=item.name, kind="discrete", kernel_driver="nvidia"))
            continue
        cards.append(
            PciDevice(
                address=f"0000:{item.index + 1:02x}:00.0",
                vendor="nvidia",
                vendor_id="10de",
                name=item.name,
                kind="discrete",
                kernel_driver="nvidia",
                link_width=Missing("asleep") if asleep else item.link_width,
                link_width_max=Missing("asleep") if asleep else item.link_width_max,
                power_state="D3cold" if asleep else "D0",
            )
        )
    return [*([integrated] if integrated else []), *cards]


BENIGN = {
    "CUDA_HOME": "/usr/local/cuda",
    "OMP_NUM_THREADS": "8",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "TORCH_CUDA_ARCH_LIST": "8.0;9.0",
}


@st.composite
def environment(draw, kind: Kind, gpus: list[Gpu]) -> tuple[dict[str, str], list[Gpu]]:
    """Benign variables, and the cards that they leave to a program."""
    left = gpus
    found = {name: value for name, value in BENIGN.items() if draw(st.booleans())}
    if kind.system == "Windows":
        found.pop("LD_LIBRARY_PATH", None)
    if draw(st.booleans()):
        order = draw(st.permutations(gpus))[: draw(st.integers(1, len(gpus)))]
        if kind.mig:
            found["CUDA_VISIBLE_DEVICES"] = str(order[0].mig_devices[1])
            return found, gpus
        spelt = draw(st.sampled_from(["{0.index}", "{0.uuid}", " {0.index}"]))
        found["CUDA_VISIBLE_DEVICES"] = ",".join(spelt.format(item) for item in order)
        left = list(order)
    return found, left


@st.composite
def script(draw, kind: Kind, usable: float, visible: int) -> ScriptLook:
    """A script that is written as it should be; or none was looked at."""
    if not draw(st.booleans()):
        return ScriptLook()
    workers = draw(st.integers(1, max(1, int(usable))))
    names = st.sampled_from(["cuda", "cpu", "cuda:0", f"cuda:{visible - 1}"])
    return ScriptLook(
        path="train.py",
        workers=workers,
        pin_memory=draw(st.booleans()),
        mixed_precision=draw(st.booleans()),
        device_strings=draw(st.lists(names, max_size=2)),
        main_guard=True,
        start_method=draw(st.sampled_from(["fork", "spawn", Missing("not-literal")])),
        sets_visible_devices_late=draw(st.booleans()),  # after the import alone, which is in time
        lines={"workers": 40, "sets_visible_devices_late": 9},
    )


# -- whole machines ------------------------------------------------------------------------------------------------------


def machine(kind: Kind) -> st.SearchStrategy[Facts]:
    return _machine(kind).map(fresh)


@st.composite
def _machine(draw, kind: Kind) -> Facts:
    cards, driver, wheel, python = draw(fitting(kind))
    gpus = [draw(gpu(kind, card, index)) for index, card in enumerate(cards)]
    variables, left = draw(environment(kind, gpus))
    usable = float(draw(st.sampled_from([2, 8, 16, 64])))
    windows = kind.system == "Windows"
    visible = 1 if kind.mig else len(left)
    site = r"C:\Users\u\venv\Lib\site-packages" if windows else "/home/u/venv/lib/python3/site-packages"
    roomy = draw(st.sampled_from([1 * GIB, 8 * GIB]))
    look = draw(script(kind, usable, visible))
    shm = Missing("not-applicable") if windows else roomy if kind.boxed else 16 * GIB
    if kind.boxed and isinstance(look.workers, Missing):
        shm = draw(st.sampled_from([64 << 20, 8 * GIB]))  # Docker's default is a note while nobody knows of workers
    return Facts(
        source="probed",
        system=_system(draw, kind),
        processor=Processor(cores=int(usable), usable=usable),
        memory=HostMemory(total_bytes=64 * GIB, available_bytes=40 * GIB),
        python=Interpreter(
            path=r"C:\Users\u\venv\Scripts\python.exe" if windows else "/home/u/venv/bin/python",
            version=python,
            bits=64,
            environment=draw(st.sampled_from(["venv", "conda", "system"])),
        ),
        hardware=Hardware(
            pci=bus(kind, gpus, _integrated(draw, kind), asleep=kind.laptop and draw(st.booleans())),
            laptop=Missing("not-reported") if kind.boxed else kind.laptop,
            on_battery=draw(st.booleans()) if kind.laptop else NOT_APPLICABLE,
            gpu_switch=draw(st.sampled_from(["hybrid", "discrete"])) if kind.laptop and not windows else NOT_APPLICABLE,
        ),
        driver=_driver(draw, kind, driver, gpus),
        cuda=Cuda(
            init_code=0,
            device_count=visible,
            toolkits=draw(st.sampled_from([[], ["11.8"], ["12.4", "13.0"]])),
            nvcc=draw(st.sampled_from([Missing("not-found", "nvcc"), "11.8", "12.4"])),
            loaded=_libraries(kind, site),
            shadowing=_shadowing(variables),
            missing_libraries=[],
        ),
        torch=_torch(draw, kind, wheel, left, site),
        application=Application(
            environment=variables,
            shm_bytes=shm,
            shm_free_bytes=shm,
            disk_free_bytes=100 * GIB,
            open_files_limit=draw(st.sampled_from([1024, 65536])),
            script=look,
        ),
    )


def _system(draw, kind: Kind) -> System:
    if kind.system == "Windows":
        return System(
            name="Windows",
            release=draw(st.sampled_from(["10", "11"])),
            distribution=NOT_APPLICABLE,
            architecture="AMD64",
            wsl=False,
            container="none",
        )
    return System(
        name="Linux",
        release="6.6.87.2-microsoft-standard-WSL2" if kind.wsl else "6.8.0-60-generic",
        distribution=draw(st.sampled_from(DISTRIBUTIONS)),
        architecture="x86_64",
        wsl=kind.wsl,
        container=kind.container,
    )


def _integrated(draw, kind: Kind) -> PciDevice | None:
    if kind.laptop:
        return INTEL
    if kind.name in ("desktop", "windows", "workstation"):
        return draw(st.sampled_from([None, INTEL, RAPHAEL]))
    return ASPEED if kind.nvswitch else None


def _driver(draw, kind: Kind, version: str, gpus: list[Gpu]) -> Driver:
    told = {
        "version": version,
        "cuda": compatibility.cuda_of(version, kind.system) or "11.0",
        "nvml_error": "none",
        "smi": draw(st.sampled_from([NOT_ASKED, "ok"])),
        "gpus": gpus,
    }
    if kind.system == "Windows":
        return Driver(**told)
    if kind.wsl:
        modules = draw(st.sampled_from([[], ["dxgkrnl"]]))
        return Driver(**told, modules=modules, module_installed=Missing("not-visible"), device_nodes=["/dev/dxg"], xids=[])
    nodes = [f"/dev/nvidia{item.index}" for item in gpus]
    return Driver(
        **told,
        kernel_version=version,
        modules=draw(
            st.sampled_from([["nvidia", "nvidia_uvm"], ["nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "i915"]])
        ),
        module_installed=Missing("not-visible") if kind.boxed else draw(st.sampled_from([True, Missing("not-visible")])),
        device_nodes=[*nodes, "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"],
        secure_boot=Missing("unreadable") if kind.boxed else draw(st.booleans()),
        # What programs do wrong by themselves is in the log of healthy machines too.
        xids=draw(st.sampled_from([[], [Xid(number=31)], [Xid(number=43)], Missing("kernel-log-unreadable")])),
        nvswitch=kind.nvswitch,
        fabric_manager="active" if kind.nvswitch else NOT_APPLICABLE,
    )


def _libraries(kind: Kind, site: str) -> list[Library]:
    if kind.system == "Windows":
        return [Library(name="cudnn", path=rf"{site}\torch\lib\cudnn64_9.dll", version="9")]
    drivers_own = "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libcuda.so.1.1" if kind.wsl else "/usr/lib64/libcuda.so.1"
    return [
        Library(name="cuda", path=drivers_own, version=Missing("not-reported")),
        Library(name="cudnn", path=f"{site}/nvidia/cudnn/lib/libcudnn.so.9", version="9.10.2"),
        Library(name="cublas", path=f"{site}/nvidia/cublas/lib/libcublas.so.12", version="12"),
    ]


def _shadowing(variables: dict[str, str]) -> list[Library]:
    folder = variables.get("LD_LIBRARY_PATH")
    return [Library(name="cublas", path=f"{folder}/libcublas.so.12", version="12.4")] if folder else []


def _torch(draw, kind: Kind, wheel: compatibility.Wheel, left: list[Gpu], site: str) -> Torch:
    installer = draw(st.sampled_from(["pip", "conda", "uv"]))
    if kind.mig:
        left = [replace_name(left[0], f"{left[0].name} MIG 3g.40gb")]
    rows = compatibility.triton_windows_of(wheel.torch)
    triton = Missing("not-installed", "triton") if kind.system == "Windows" and draw(st.booleans()) else f"{rows or '3.0'}.0"
    if parse(max((item.capability for item in left), key=parse)) >= (10, 0):
        triton = "3.4.0" if isinstance(triton, str) else triton
    return Torch(
        status="ok",
        error=NOT_APPLICABLE,
        version=f"{wheel.torch}.{draw(st.sampled_from([0, 1]))}" + ("" if installer == "conda" else f"+{wheel.variant}"),
        cuda=wheel.cuda,
        hip="none",
        arch_list=wheel.arch_list(kind.system),
        available=True,
        device_count=len(left),
        devices=[item.name for item in left],
        capabilities=[str(item.capability) for item in left],
        error_code=Missing("none-seen"),
        warnings=[],
        cudnn="9.10.2",
        triton=triton,
        path=f"{site}/torch/__init__.py",
        installer=installer,
        others=draw(st.sampled_from([[], ["2.5.1+cpu in /home/u/other"], ["2.6.0+cu124 in /home/u/other"]])),
        kernel="ok",
        extensions=draw(
            st.sampled_from([[], [Extension(name="flash-attn", version="2.7.4", arch_list=NOT_ASKED)]]),
        ),
    )


def replace_name(item: Gpu, name: str) -> Gpu:
    return Gpu(**{field: getattr(item, field) for field in item.__struct_fields__ if field != "name"}, name=name)


# -- machines without NVIDIA ---------------------------------------------------------------------------------------------

RADEON = PciDevice(
    address="0000:03:00.0",
    vendor="amd",
    vendor_id="1002",
    name="Navi 31 [Radeon RX 7900 XT/7900 XTX]",
    kind="discrete",
    kernel_driver="amdgpu",
)
WITHOUT_NVIDIA = {"nvml_error": "nvml-library-not-found", "smi": "not-found"}


def radeon() -> st.SearchStrategy[Facts]:
    """Linux, a Radeon card and a ROCm torch; maybe the processor's own graphics beside it."""
    return _radeon().map(fresh)


@st.composite
def _radeon(draw) -> Facts:
    both = draw(st.booleans())
    return Facts(
        source="probed",
        system=_system(draw, Kind("radeon", ())),
        processor=Processor(cores=16, usable=16.0),
        python=Interpreter(path="/home/u/venv/bin/python", version="3.12.3", bits=64, environment="venv"),
        hardware=Hardware(pci=[RADEON, *([RAPHAEL] if both else [])], laptop=False),
        driver=Driver(
            **WITHOUT_NVIDIA,
            version=Missing("nvml-library-not-found"),
            gpus=Missing("nvml-library-not-found"),
            modules=["amdgpu"],
            module_installed=draw(st.booleans()),
            device_nodes=["/dev/kfd"],
            secure_boot=draw(st.booleans()),
        ),
        cuda=Cuda(init_code=Missing("libcuda-not-found"), device_count=Missing("libcuda-not-found"), missing_libraries=[]),
        torch=Torch(
            status="ok",
            version="2.9.1+rocm6.4",
            cuda="none",
            hip="6.4.43482",
            arch_list=["gfx1030", "gfx1100"],
            available=True,
            device_count=1,
            devices=["AMD Radeon RX 7900 XTX"],
            capabilities=["11.0"],
            error_code=Missing("none-seen"),
            triton="3.5.1",
            installer="pip",
            kernel="ok",
        ),
        application=Application(shm_bytes=16 * GIB, shm_free_bytes=16 * GIB),
    )


def mac() -> st.SearchStrategy[Facts]:
    return _mac().map(fresh)


@st.composite
def _mac(draw) -> Facts:
    return Facts(
        source="probed",
        system=System(
            name="Darwin", release="24.5.0", distribution="macOS 15.5", architecture="arm64", wsl=False, container="none"
        ),
        processor=Processor(cores=12, usable=12.0),
        python=Interpreter(path="/Users/u/venv/bin/python", version="3.12.3", bits=64, environment="venv"),
        hardware=Hardware(pci=[PciDevice(vendor="apple", name="Apple M3 Pro", kind="integrated")], laptop=draw(st.booleans())),
        driver=Driver(nvml_error="nvml-library-not-found", gpus=Missing("nvml-library-not-found")),
        cuda=Cuda(init_code=Missing("libcuda-not-found"), missing_libraries=[]),
        torch=Torch(
            status="ok",
            version="2.9.1",
            cuda="none",
            hip="none",
            arch_list=[],
            available=False,
            device_count=0,
            devices=[],
            triton=Missing("not-installed", "triton"),
            kernel=Missing("no-device"),
        ),
    )
