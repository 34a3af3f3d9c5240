"""DR218 reserved-for-vm: the host keeps the card for virtual machines (vfio-pci)."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import any_nvidia_gpu, cuda_works, gpus, known, linux_host
from flatout.machine.machine_facts import Facts

KEEPERS = ("vfio-pci", "vfio_pci", "pci-stub")


def check(facts: Facts) -> Finding | None:
    cards = [device for device in known(facts.hardware.pci) or [] if device.vendor == "nvidia"]
    kept = [device for device in cards if known(device.kernel_driver) in KEEPERS]
    if not kept or len(kept) < len(cards) or not linux_host(facts) or cuda_works(facts) or gpus(facts):
        return None  # a card kept for a guest beside one that works here is what its owner wants
    return RULE.found(
        Fix(text="inside"),
        Fix(text="give-back"),
        Fix(command="grep -rn vfio /etc/modprobe.d /etc/default/grub /etc/kernel/cmdline"),
        Fix(text="reboot"),
        gpu=any_nvidia_gpu(facts) or "NVIDIA GPU",
        kernel_driver=known(kept[0].kernel_driver),
        address=known(kept[0].address),
    )


RULE = Rule(
    code="DR218",
    name="reserved-for-vm",
    layer=Layer.DRIVER,
    check=check,
    explains=("no-driver", "kernel-module-missing", "driver-not-answering", "secure-boot", "cuda-start-failed"),
)
