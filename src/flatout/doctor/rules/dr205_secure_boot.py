"""DR205 secure-boot: the firmware lets no unsigned module into the kernel, and the driver's is unsigned."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import (
    any_nvidia_gpu,
    bus_without_nvidia,
    cuda_fails,
    cuda_works,
    driver_answers,
    known,
    linux_host,
    modules,
    symptom,
)
from flatout.doctor.remedy import by_distribution
from flatout.machine.machine_facts import Facts

# Where the distribution keeps the key that signs modules built on this machine.
ENROL_COMMANDS = (
    ("ubuntu", "sudo update-secureboot-policy --enroll-key && sudo reboot"),
    ("mint", "sudo update-secureboot-policy --enroll-key && sudo reboot"),
    ("debian", "sudo mokutil --import /var/lib/dkms/mok.pub && sudo reboot"),
    ("fedora", "sudo kmodgenca -a && sudo mokutil --import /etc/pki/akmods/certs/public_key.der && sudo reboot"),
)


def check(facts: Facts) -> Finding | None:
    if facts.driver.secure_boot is not True or not linux_host(facts) or cuda_works(facts) or driver_answers(facts):
        return None
    if bus_without_nvidia(facts):
        return None
    absent = facts.driver.module_installed is False and facts.source == "probed"  # in a paste: modprobe did not find a way
    if "nvidia" in (modules(facts) or ()) or absent:
        return None  # it was let in, or there is nothing to let in
    if modules(facts) is None and driver_answers(facts) is None and not cuda_fails(facts):
        return None  # nobody misses the driver
    seen = facts.source == "pasted" or any_nvidia_gpu(facts) is not None  # Ubuntu brings the module to machines without a card
    present = facts.driver.module_installed is True and seen
    failed = symptom(facts, "smi-failed") is not None or known(facts.driver.smi) == "failed"
    if not present and not failed and facts.driver.nvml_error != "nvml-driver-not-loaded":
        return None
    enrol = by_distribution(facts, ENROL_COMMANDS, "sudo mokutil --import /var/lib/dkms/mok.pub && sudo reboot")
    return RULE.found(
        Fix(command="sudo modprobe nvidia"),
        Fix(text="enrol"),
        Fix(command=enrol),
        Fix(text="blue-screen"),
        Fix(text="or-off"),
        certain=present and modules(facts) is not None,
        secure_boot=True,
        module_installed=facts.driver.module_installed,
        nvml_error=facts.driver.nvml_error,
    )


RULE = Rule(
    code="DR205",
    name="secure-boot",
    layer=Layer.DRIVER,
    check=check,
    explains=("kernel-module-missing", "no-driver", "nouveau-loaded", "driver-not-answering", "cuda-start-failed"),
)
