"""DR204 nouveau-loaded: the card belongs to nouveau, the kernel's own driver, which has no CUDA."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import any_nvidia_gpu, cuda_works, known, linux_host, modules
from flatout.doctor.remedy import BOOT_IMAGE_COMMANDS, by_distribution, install_driver
from flatout.machine.machine_facts import Facts

BLACKLIST = r"printf 'blacklist nouveau\noptions nouveau modeset=0\n' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf"


def check(facts: Facts) -> Finding | None:
    if not linux_host(facts) or cuda_works(facts):
        return None
    drivers = {known(device.kernel_driver) for device in known(facts.hardware.pci) or [] if device.vendor == "nvidia"}
    loaded = modules(facts) or set()
    if "nvidia" in drivers or "nvidia" in loaded:
        return None  # one of several cards may be nouveau's; the other works
    if "nouveau" not in drivers and "nouveau" not in loaded:
        return None
    image = by_distribution(facts, BOOT_IMAGE_COMMANDS, "sudo update-initramfs -u")
    return RULE.found(
        *install_driver(facts),
        Fix(text="blacklist"),
        Fix(command=BLACKLIST),
        Fix(command=f"{image} && sudo reboot"),
        certain="nouveau" in drivers or known(facts.hardware.pci) is None,
        gpu=any_nvidia_gpu(facts) or "NVIDIA GPU",
        kernel_driver="nouveau",
        smi=facts.driver.smi,
    )


RULE = Rule(
    code="DR204",
    name="nouveau-loaded",
    layer=Layer.DRIVER,
    check=check,
    explains=("no-driver", "kernel-module-missing", "driver-not-answering", "cuda-start-failed"),
)
