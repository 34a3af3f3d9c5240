"""DR209 container-toolkit-missing: Docker is asked for a GPU and does not know how to give one."""

from __future__ import annotations

from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.queries import symptom, system
from flatout.doctor.remedy import by_distribution
from flatout.machine.machine_facts import Facts

PACKAGE_COMMANDS = (
    ("fedora", "sudo dnf install -y nvidia-container-toolkit"),
    ("red hat", "sudo dnf install -y nvidia-container-toolkit"),
    ("rocky", "sudo dnf install -y nvidia-container-toolkit"),
    ("alma", "sudo dnf install -y nvidia-container-toolkit"),
    ("centos", "sudo dnf install -y nvidia-container-toolkit"),
    ("suse", "sudo zypper install -y nvidia-container-toolkit"),
    ("arch", "sudo pacman -S nvidia-container-toolkit"),
    ("manjaro", "sudo pacman -S nvidia-container-toolkit"),
)

CONFIGURE = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"


def check(facts: Facts) -> Finding | None:
    reported = symptom(facts, "docker-no-device-driver")
    if reported is None:
        return None
    install = by_distribution(facts, PACKAGE_COMMANDS, "sudo apt-get install -y nvidia-container-toolkit")
    windows = [Fix(text="docker-desktop"), Fix(command="wsl --update"), Fix(text="check-docker")]
    linux = [Fix(text="repository"), Fix(command=install), Fix(command=CONFIGURE), Fix(text="check-docker")]
    return RULE.found(
        *(windows if system(facts) == "Windows" else linux),
        Fix(command="docker run --rm --gpus all ubuntu nvidia-smi"),
        symptom=reported.code,
        driver=facts.driver.version,
    )


RULE = Rule(
    code="DR209",
    name="container-toolkit-missing",
    layer=Layer.DRIVER,
    check=check,
    explains=("container-no-gpu-flag", "no-driver", "kernel-module-missing", "cuda-start-failed"),
)
