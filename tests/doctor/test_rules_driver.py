"""Rules of the driver layer: each found from live facts and from a paste, and not on a healthy machine."""

from __future__ import annotations

import pytest
from findings import (
    CARD,
    DOCKER,
    INTEL,
    MODULES,
    NODES,
    UBUNTU,
    WINDOWS,
    WSL,
    broken,
    commands,
    find,
    gpu,
    names,
    pasted,
    probed,
    proven,
    seen,
    texts,
    working,
)

from flatout.base.records import Missing
from flatout.doctor.model import Severity
from flatout.machine.machine_facts import (
    Application,
    Cuda,
    Driver,
    GpuProcess,
    Hardware,
    Library,
    PciDevice,
    System,
    Torch,
    Xid,
)

UNBOUND = PciDevice(vendor="nvidia", name="NVIDIA GeForce RTX 4090", kind="discrete", kernel_driver="none")
NOUVEAU = PciDevice(vendor="nvidia", name="NVIDIA GeForce RTX 4090", kind="discrete", kernel_driver="nouveau")


def answering(**more) -> Driver:
    values = {
        "version": "580.95.05",
        "nvml_error": "none",
        "smi": "ok",
        "gpus": [gpu()],
        "modules": MODULES,
        "device_nodes": NODES,
    }
    return Driver(**{**values, **more})


# -- DR201 ---------------------------------------------------------------------------------------------------------

ABSENT = Driver(nvml_error="nvml-library-not-found", smi="not-found", modules=[], module_installed=False, device_nodes=[])


def test_no_driver():
    facts = probed(broken(hardware=Hardware(pci=[UNBOUND]), driver=ABSENT))
    assert names(facts) == ["no-driver"]
    assert "ubuntu-drivers install" in commands(find("DR201", facts))
    windows = probed(broken(system=WINDOWS, hardware=Hardware(pci=[UNBOUND]), driver=ABSENT))
    assert "driver-windows" in texts(find("DR201", windows))


@pytest.mark.parametrize("code", ["found-no-driver", "smi-not-found"])
def test_no_driver_pasted(code):
    assert names(pasted(code)) == ["no-driver"]


def test_no_driver_where_no_tool_could_name_one():
    torch = Torch(version="1.10.2", cuda="11.3", available=False)
    facts = pasted(torch=torch, cuda=Cuda(nvcc="11.3.109"), system=System(name="Linux", distribution="Ubuntu 20.04.3 LTS"))
    assert names(facts) == ["no-driver"]
    assert not proven(find("DR201", facts)).certain
    assert names(pasted("works-elsewhere", torch=torch)) == []


def test_no_driver_near_misses():
    assert find("DR201", probed(broken(hardware=Hardware(pci=[INTEL]), driver=ABSENT))) is None
    assert find("DR201", probed(working())) is None
    assert find("DR201", pasted("found-no-driver", system=DOCKER)) is None
    assert find("DR201", pasted("found-no-driver", system=WSL)) is None
    assert find("DR201", probed(system=System(name="Darwin"), driver=ABSENT)) is None


# -- DR202 ---------------------------------------------------------------------------------------------------------

UNLOADED = Driver(nvml_error="nvml-driver-not-loaded", smi="failed", modules=[], module_installed=False, version="580.95.05")


def test_kernel_module_missing():
    facts = probed(broken(hardware=Hardware(pci=[UNBOUND]), driver=UNLOADED))
    assert names(facts) == ["kernel-module-missing"]
    assert "dkms autoinstall" in commands(find("DR202", facts))
    arch = System(name="Linux", distribution="Arch Linux", wsl=False, container="none")
    assert "pacman" in commands(find("DR202", probed(broken(system=arch, driver=UNLOADED))))
    unknown = System(name="Linux", distribution="NixOS 25.05", wsl=False, container="none")
    assert "modprobe nvidia" in commands(find("DR202", probed(broken(system=unknown, driver=UNLOADED))))


def test_kernel_module_missing_pasted():
    assert names(pasted("smi-failed")) == ["kernel-module-missing"]
    assert proven(find("DR202", pasted("smi-failed", "after-kernel-update"))).certain


@pytest.mark.parametrize(
    "facts",
    [
        probed(working()),
        pasted("smi-failed", system=WINDOWS),
        pasted("smi-failed", system=DOCKER),
        pasted("smi-failed", system=WSL),
        probed(broken(hardware=Hardware(pci=[INTEL]), driver=UNLOADED)),
        probed(broken(driver=Driver(smi="failed", modules=["nvidia"]))),
    ],
)
def test_kernel_module_missing_near_misses(facts):
    assert find("DR202", facts) is None


def test_windows_driver_that_does_not_answer():
    assert names(pasted("smi-failed", system=WINDOWS)) == ["no-driver"]


# -- DR203 ---------------------------------------------------------------------------------------------------------


def test_driver_library_mismatch():
    driver = Driver(
        nvml_error="nvml-version-mismatch", smi="failed", version="550.144", kernel_version="535.230.02", modules=MODULES
    )
    facts = probed(broken(driver=driver))
    assert names(facts) == ["driver-library-mismatch"]
    finding = find("DR203", facts)
    assert commands(finding).startswith("sudo reboot")
    assert finding.evidence["kernel_module"] == "535.230.02"
    assert "restart-windows" in texts(find("DR203", pasted("nvml-version-mismatch", system=WINDOWS)))
    assert "restart-host" in texts(find("DR203", pasted("nvml-version-mismatch", system=DOCKER)))


def test_driver_library_mismatch_pasted():
    assert names(pasted(seen("nvml-version-mismatch", library="550.144"))) == ["driver-library-mismatch"]
    assert names(pasted(seen("cuda-error", code=803))) == ["driver-library-mismatch"]
    assert names(pasted(driver=Driver(version="550.90", kernel_version="535.183"))) == ["driver-library-mismatch"]


@pytest.mark.parametrize(
    "driver",
    [
        Driver(version="550.144", kernel_version="550.144.03"),
        Driver(version="550.144.03", kernel_version="535.1", nvml_error="none"),  # it answers
        Driver(version="550.144.03"),
    ],
)
def test_driver_library_mismatch_near_misses(driver):
    assert find("DR203", probed(broken(driver=driver))) is None
    assert find("DR203", pasted(system=WSL, driver=Driver(version="551.23", kernel_version="550.40"))) is None


# -- DR204 ---------------------------------------------------------------------------------------------------------


def test_nouveau_loaded():
    driver = Driver(nvml_error="nvml-driver-not-loaded", smi="failed", modules=["nouveau"])
    facts = probed(broken(hardware=Hardware(pci=[NOUVEAU]), driver=driver))
    assert names(facts) == ["nouveau-loaded"]
    assert "blacklist nouveau" in commands(find("DR204", facts))
    assert "update-initramfs" in commands(find("DR204", facts))
    fedora = System(name="Linux", distribution="Fedora Linux 42", wsl=False, container="none")
    assert "dracut" in commands(find("DR204", probed(broken(system=fedora, hardware=Hardware(pci=[NOUVEAU])))))


def test_nouveau_loaded_pasted():
    assert names(pasted("smi-failed", driver=Driver(modules=["nouveau"]))) == ["nouveau-loaded"]


def test_nouveau_beside_a_working_card():
    layers = {**working(), "hardware": Hardware(pci=[CARD, NOUVEAU])}
    assert find("DR204", probed(layers)) is None
    assert find("DR204", probed(broken(hardware=Hardware(pci=[CARD, NOUVEAU])))) is None


# -- DR205 ---------------------------------------------------------------------------------------------------------


def test_secure_boot():
    driver = Driver(nvml_error="nvml-driver-not-loaded", smi="failed", modules=[], module_installed=True, secure_boot=True)
    facts = probed(broken(hardware=Hardware(pci=[UNBOUND]), driver=driver))
    assert names(facts) == ["secure-boot"]
    assert "--enroll-key" in commands(find("DR205", facts))


def test_secure_boot_pasted():
    assert names(pasted("smi-failed", driver=Driver(secure_boot=True))) == ["secure-boot"]
    assert names(pasted("smi-failed", driver=Driver(secure_boot=True, module_installed=False))) == ["secure-boot"]


def test_secure_boot_near_misses():
    assert find("DR205", probed(working(secure_boot=True))) is None
    missing = Driver(smi="failed", modules=[], module_installed=False, secure_boot=True)
    assert names(probed(broken(driver=missing))) == ["kernel-module-missing"]


# -- DR206 and DR207 -----------------------------------------------------------------------------------------------

NO_UVM = answering(modules=["nvidia", "nvidia_drm"], device_nodes=["/dev/nvidia0", "/dev/nvidiactl"])


def test_uvm_not_loaded():
    facts = probed(broken(driver=NO_UVM, cuda=Cuda(init_code=999)))
    assert names(facts) == ["uvm-not-loaded"]
    assert "modprobe nvidia_uvm" in commands(find("DR206", facts))
    boxed = probed(
        broken(system=DOCKER, driver=answering(device_nodes=["/dev/nvidia0", "/dev/nvidiactl"]), cuda=Cuda(init_code=999))
    )
    assert "container" in texts(find("DR206", boxed))


def test_uvm_not_loaded_pasted():
    driver = Driver(smi="ok", version="455.23.04", gpus=[gpu(name="GeForce RTX 3090")])
    assert names(pasted("cuda-not-available", "after-kernel-update", driver=driver)) == ["uvm-not-loaded"]
    assert names(pasted(seen("cuda-error", code=999), driver=Driver(modules=["nvidia"]))) == ["uvm-not-loaded"]


def test_uvm_near_misses():
    assert find("DR206", probed(working(modules=["nvidia"]))) is None  # loaded when it is first needed
    idle = probed(system=UBUNTU, hardware=Hardware(pci=[CARD]), driver=NO_UVM)
    assert find("DR206", idle) is None
    masked = broken(driver=NO_UVM, application=Application(environment={"CUDA_VISIBLE_DEVICES": "-1"}))
    assert find("DR206", probed(masked)) is None
    assert find("DR206", pasted(seen("cuda-error", code=802), driver=NO_UVM)) is None


def test_suspend_resume():
    facts = probed(broken(driver=answering(), cuda=Cuda(init_code=999)))
    assert names(facts) == ["suspend-resume"]
    finding = find("DR207", facts)
    assert not finding.certain
    assert "rmmod nvidia_uvm" in commands(finding)
    assert "restart-windows" in texts(find("DR207", pasted(seen("cuda-error", code=999), system=WINDOWS)))


def test_suspend_resume_pasted():
    assert names(pasted(seen("cuda-error", code=999))) == ["suspend-resume"]
    slept = pasted(seen("cuda-error", code=99), "after-suspend")
    assert names(slept) == ["suspend-resume"]
    assert find("DR207", slept).certain


def test_suspend_resume_near_misses():
    assert find("DR207", pasted("after-suspend", torch=Torch(available=True))) is None
    assert find("DR207", pasted(seen("cuda-error", code=100))) is None
    assert find("DR207", pasted(seen("cuda-error", code=999), system=WSL)) is None


# -- containers ----------------------------------------------------------------------------------------------------

BARE = Driver(nvml_error="nvml-library-not-found", smi="not-found", modules=MODULES, device_nodes=[])


def test_container_no_gpu_flag():
    facts = probed(broken(system=DOCKER, driver=BARE))
    assert names(facts) == ["container-no-gpu-flag"]
    assert "docker run --gpus all" in commands(find("DR208", facts))
    for kind, word in (("podman", "nvidia.com/gpu=all"), ("kubernetes", "kubectl")):
        system = System(name="Linux", wsl=False, container=kind)
        assert word in commands(find("DR208", probed(broken(system=system, driver=BARE))))
    lxc = System(name="Linux", wsl=False, container="lxc")
    assert "lxc" in texts(find("DR208", probed(broken(system=lxc, driver=BARE))))


def test_container_no_gpu_flag_pasted():
    assert names(pasted("container-driver-not-detected")) == ["container-no-gpu-flag"]
    assert names(pasted("found-no-driver", system=DOCKER)) == ["container-no-gpu-flag"]
    of_the_host = Driver(smi="ok", version="550.54.14", gpus=[gpu()])
    assert names(pasted("found-no-driver", system=DOCKER, driver=of_the_host)) == ["container-no-gpu-flag"]
    assert names(pasted("cuda-not-available", "docker-run-without-gpus", driver=of_the_host)) == ["container-no-gpu-flag"]
    assert names(pasted("docker-run-without-gpus", "bus-error-in-worker", system=DOCKER)) == []


def test_container_without_any_gpu_on_the_host():
    none = Driver(nvml_error="nvml-library-not-found", smi="not-found", modules=[], device_nodes=[])
    assert names(probed(broken(system=DOCKER, hardware=Hardware(pci=[]), driver=none))) == ["no-gpu"]
    assert names(probed(broken(system=DOCKER, hardware=Hardware(), driver=none))) == []
    desktop = System(name="Linux", wsl=True, container="docker")
    facts = probed(broken(system=desktop, hardware=Hardware(), driver=none))
    assert proven(find("DR208", facts)).severity is Severity.NOTE
    assert find("DR208", probed({**working(), "system": DOCKER})) is None


def test_container_toolkit_missing():
    facts = pasted("docker-no-device-driver", system=UBUNTU)
    assert names(facts) == ["container-toolkit-missing"]
    assert "nvidia-ctk runtime configure" in commands(find("DR209", facts))
    assert "docker-desktop" in texts(find("DR209", pasted("docker-no-device-driver", system=WINDOWS)))
    fedora = System(name="Linux", distribution="Fedora Linux 42")
    assert "dnf install" in commands(find("DR209", pasted("docker-no-device-driver", system=fedora)))
    assert find("DR209", pasted("container-driver-not-detected")) is None


def test_container_cgroup():
    facts = probed(
        broken(system=DOCKER, driver=Driver(nvml_error="nvml-error", smi="failed", device_nodes=NODES, modules=MODULES))
    )
    assert names(facts) == ["container-cgroup"]
    assert "docker restart" in commands(find("DR210", facts))


def test_container_cgroup_pasted():
    assert names(pasted("nvml-unknown-error", "after-container-reload")) == ["container-cgroup"]
    assert names(pasted("nvml-unknown-error")) == ["container-cgroup"]
    host = Driver(smi="ok", version="570.133.20", gpus=[gpu(name="NVIDIA A10")])
    assert names(pasted("nvml-unknown-error", "after-container-reload", driver=host, system=DOCKER)) == ["container-cgroup"]


def test_container_cgroup_near_misses():
    assert find("DR210", pasted("nvml-unknown-error", system=UBUNTU)) is None
    assert find("DR210", probed({**working(), "system": DOCKER})) is None
    assert find("DR210", probed(broken(system=DOCKER, driver=Driver(nvml_error="nvml-error", device_nodes=[])))) is None


# -- DR211 ---------------------------------------------------------------------------------------------------------


def test_wsl_without_the_device():
    facts = probed(broken(system=WSL, hardware=Hardware(), driver=Driver(nvml_error="nvml-library-not-found", device_nodes=[])))
    assert names(facts) == ["wsl-driver"]
    assert "wsl --update" in commands(find("DR211", facts))
    assert "driver-wsl" in texts(find("DR211", facts))


def test_wsl_with_a_linux_driver_in_the_way():
    cuda = Cuda(init_code=100, loaded=[Library(name="cuda", path="/usr/lib/x86_64-linux-gnu/libcuda.so.1")])
    facts = probed(broken(system=WSL, hardware=Hardware(), driver=answering(modules=[], device_nodes=["/dev/dxg"]), cuda=cuda))
    assert names(facts) == ["wsl-driver"]
    assert "purge" in commands(find("DR211", facts))


def test_wsl_driver_pasted():
    assert names(pasted(seen("cuda-error", code=100), system=WSL)) == ["wsl-driver"]
    shown = Driver(smi="ok", version="516.94", gpus=[gpu()])
    assert names(pasted(seen("cuda-error", code=2), system=WSL, driver=shown)) == ["wsl-driver"]


def test_wsl_near_misses():
    assert find("DR211", probed({**working(), "system": WSL})) is None
    assert find("DR211", pasted("out-of-memory", seen("cuda-error", code=2), system=WSL, driver=answering())) is None
    cpu = Torch(version="2.9.0+cpu", cuda="none", available=False)
    assert find("DR211", pasted(system=WSL, driver=answering(), torch=cpu)) is None
    assert find("DR211", pasted(seen("cuda-error", code=209), system=WSL, driver=answering())) is None


# -- DR212 ---------------------------------------------------------------------------------------------------------


def test_fabric_manager():
    driver = answering(nvswitch=True, fabric_manager="not-installed")
    facts = probed(broken(driver=driver, cuda=Cuda(init_code=802)))
    assert names(facts) == ["fabric-manager"]
    assert "nvidia-fabricmanager-580" in commands(find("DR212", facts))
    stopped = probed(broken(driver=answering(nvswitch=True, fabric_manager="inactive"), cuda=Cuda(init_code=3)))
    assert "apt-get" not in commands(find("DR212", stopped))


def test_fabric_manager_pasted():
    assert names(pasted(seen("cuda-error", code=802))) == ["fabric-manager"]


def test_fabric_manager_of_the_host():
    assert find("DR212", probed(working(nvswitch=True, fabric_manager="not-installed"))) is None


# -- DR213 and DR214 -----------------------------------------------------------------------------------------------


def test_compute_mode():
    held = gpu(compute_mode="exclusive_process", processes=[GpuProcess(pid=1, name="python")])
    facts = probed(broken(driver=answering(gpus=[held]), cuda=Cuda(init_code=46)))
    assert names(facts) == ["compute-mode"]
    assert "sudo nvidia-smi -i 0 -c DEFAULT" in commands(find("DR213", facts))
    assert "sudo" not in commands(find("DR213", pasted(seen("cuda-error", code=46), system=WINDOWS)))
    closed = probed(broken(driver=answering(gpus=[gpu(compute_mode="prohibited")])))
    assert names(closed) == ["compute-mode"]


def test_compute_mode_pasted():
    assert names(pasted(seen("cuda-error", code=46))) == ["compute-mode"]


def test_compute_mode_near_misses():
    assert find("DR213", probed(working(gpu(compute_mode="exclusive_process")))) is None
    two = [gpu(compute_mode="prohibited"), gpu(index=1)]
    assert find("DR213", probed(broken(driver=answering(gpus=two)))) is None
    open_to_all = answering(gpus=[gpu(compute_mode="default")])
    assert find("DR213", pasted(seen("cuda-error", code=46), driver=open_to_all)) is None


def test_mig_without_instances():
    facts = probed(broken(driver=answering(gpus=[gpu(name="NVIDIA A100-SXM4-80GB", mig_enabled=True, mig_devices=[])])))
    assert names(facts) == ["mig"]
    assert "mig -cgi" in commands(find("DR214", facts))


def test_mig_with_a_stale_uuid():
    cut = gpu(name="NVIDIA A100-SXM4-80GB", mig_enabled=True, mig_devices=["MIG-new"])
    mask = Application(environment={"CUDA_VISIBLE_DEVICES": "MIG-old"})
    assert names(probed(broken(driver=answering(gpus=[cut]), application=mask))) == ["mig"]
    right = Application(environment={"CUDA_VISIBLE_DEVICES": "MIG-new"})
    assert find("DR214", probed({**working(cut), "application": right})) is None


def test_mig_pasted():
    count = seen("device-count-wrong", shown=1, expected=7)
    assert names(pasted(count, driver=Driver(gpus=[gpu(name="A100", mig_enabled=True)]))) == ["mig"]
    mask = Application(environment={"CUDA_VISIBLE_DEVICES": "MIG-feee0c61"})
    assert names(pasted(seen("device-count-wrong", shown=0), application=mask)) == ["mig"]
    assert find("DR214", pasted(count)) is None


# -- the rest ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["timeout", "garbled"])
def test_smi_unusable_is_a_note(answer):
    facts = probed(working(smi=answer))
    assert proven(find("DR215", facts)).severity is Severity.NOTE
    assert names(facts) == []
    assert "where nvidia-smi" in commands(find("DR215", probed({**working(smi=answer), "system": WINDOWS})))
    assert find("DR215", probed(working(smi="not-found"))) is None


def test_driver_not_answering():
    old = PciDevice(vendor="nvidia", name="NVIDIA GeForce GTX 1080 Ti", kind="discrete", kernel_driver="nvidia")
    facts = probed(broken(hardware=Hardware(pci=[old]), driver=answering(version="590.44.01", gpus=[])))
    assert names(facts) == ["driver-not-answering"]
    finding = find("DR216", facts)
    assert texts(finding)[0] == "legacy"
    assert finding.evidence["last_branch"] == "580"
    hangs = Driver(nvml_error="probe-timeout", smi="timeout", modules=MODULES)
    assert names(probed(broken(driver=hangs))) == ["driver-not-answering"]
    assert "restart-windows" in texts(find("DR216", pasted("smi-no-devices", system=WINDOWS)))


def test_driver_not_answering_pasted():
    assert names(pasted("smi-no-devices")) == ["driver-not-answering"]
    assert names(pasted("nvml-unknown-error", system=UBUNTU)) == ["driver-not-answering"]


def test_driver_not_answering_near_misses():
    assert find("DR216", probed(working())) is None
    assert find("DR216", probed(broken(hardware=Hardware(pci=[INTEL]), driver=Driver(nvml_error="nvml-error")))) is None


def test_gsp_timeout():
    hung = probed(broken(driver=answering(xids=[Xid(number=119)]), cuda=Cuda(init_code=999)))
    assert names(hung) == ["gsp-timeout"]
    assert "NVreg_EnableGpuFirmware=0" in commands(find("DR217", hung))
    assert names(pasted(seen("xid", number=120))) == ["gsp-timeout"]
    assert names(probed(working(xids=[Xid(number=119)]))) == []
    assert find("DR217", probed(working(xids=[Xid(number=13)]))) is None


def test_reserved_for_vm():
    kept = PciDevice(
        vendor="nvidia", name="NVIDIA RTX A4000", kind="discrete", kernel_driver="vfio-pci", address="0000:01:00.0"
    )
    facts = probed(broken(hardware=Hardware(pci=[INTEL, kept]), driver=ABSENT))
    assert names(facts) == ["reserved-for-vm"]
    assert "grep -rn vfio" in commands(find("DR218", facts))
    assert names(pasted("smi-failed", hardware=Hardware(pci=[kept])))[0] == "reserved-for-vm"
    assert find("DR218", probed({**working(), "hardware": Hardware(pci=[CARD, kept])})) is None


def test_kfd_missing():
    card = PciDevice(vendor="amd", name="AMD Radeon RX 7900 XTX", kind="discrete", kernel_driver="amdgpu")
    rocm = Torch(status="ok", version="2.9.0+rocm6.4", cuda="none", hip="6.4", available=False)
    layers = {"hardware": Hardware(pci=[card]), "driver": Driver(device_nodes=[]), "torch": rocm}
    assert "modprobe amdgpu" in commands(find("DR219", probed(layers, system=UBUNTU)))
    assert "--device=/dev/kfd" in commands(find("DR219", probed(layers, system=DOCKER)))
    assert find("DR219", probed(layers, system=UBUNTU, torch=Torch(cuda="12.8", hip="none", available=False))) is None
    ready = {**layers, "driver": Driver(device_nodes=["/dev/kfd"])}
    assert find("DR219", probed(ready, system=UBUNTU)) is None


# -- DR220 ---------------------------------------------------------------------------------------------------------


def halves(**more) -> Driver:
    """The kernel half of the driver is there, its libraries are not."""
    values = {"kernel_version": "580.95.05", "nvml_error": "nvml-library-not-found", "smi": "not-found"}
    return Driver(**{**values, "modules": MODULES, "device_nodes": NODES, **more})


GONE = Cuda(init_code=Missing("libcuda-not-found"))


def test_driver_library_missing():
    for system in (UBUNTU, DOCKER):
        facts = probed(broken(system=system, driver=halves(), cuda=GONE))
        assert names(facts)[0] == "driver-library-missing"
        assert proven(find("DR220", facts)).evidence["libraries"] == ["libnvidia-ml.so.1", "libcuda.so.1"]
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in commands(
        find("DR220", probed(broken(system=DOCKER, driver=halves())))
    )


def test_driver_library_missing_for_cuda_alone():
    """NVIDIA_DRIVER_CAPABILITIES=utility: nvidia-smi works, torch finds no driver."""
    facts = probed(broken(system=DOCKER, driver=answering(kernel_version="580.95.05"), cuda=GONE))
    assert names(facts)[0] == "driver-library-missing"


def test_driver_library_missing_near_misses():
    assert find("DR220", probed(working())) is None
    assert find("DR220", probed(broken(driver=halves(device_nodes=[])))) is None
    assert find("DR220", probed(broken(system=WSL, driver=halves(), cuda=GONE))) is None
    assert find("DR220", probed(broken(system=WINDOWS, driver=halves(), cuda=GONE))) is None
