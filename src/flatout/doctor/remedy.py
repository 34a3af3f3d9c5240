"""Repairs that several rules end in, as commands for this very system, interpreter, card and driver."""

from __future__ import annotations

from flatout.doctor import queries
from flatout.doctor.model import Fix
from flatout.machine import compatibility, worker_estimate
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import at_least

# What a distribution installs its NVIDIA driver with, by a word of its name.
DRIVER_COMMANDS = (
    ("ubuntu", "sudo ubuntu-drivers install && sudo reboot"),
    ("mint", "sudo ubuntu-drivers install && sudo reboot"),
    ("pop", "sudo apt install system76-driver-nvidia && sudo reboot"),
    ("debian", "sudo apt install nvidia-driver && sudo reboot"),
    ("fedora", "sudo dnf install akmod-nvidia && sudo reboot"),
    ("arch", "sudo pacman -Syu nvidia && sudo reboot"),
    ("manjaro", "sudo mhwd -a pci nonfree 0300 && sudo reboot"),
    ("suse", "sudo zypper install nvidia-video-G06 && sudo reboot"),
)


def python_command(facts: Facts) -> str:
    """The interpreter that has the fault, quoted where its path needs it."""
    path = queries.known(facts.python.path) or "python"
    return f'"{path}"' if " " in path or "\\" in path else path


def pip(facts: Facts, arguments: str) -> Fix:
    return Fix(command=f"{python_command(facts)} -m pip {arguments}")


def reinstall_torch(facts: Facts) -> list[Fix]:
    """Update the driver first where no wheel for the card runs on it; then the newest wheel that fits all four."""
    card, driver = queries.capability(facts), queries.known(facts.driver.version)
    system, python = queries.system(facts), queries.known(facts.python.version)
    steps = []
    knows_card = compatibility.minimum_driver_of_card(card) if card else None
    too_old = driver is not None and knows_card is not None and not at_least(driver, knows_card)
    wheel = None if too_old else compatibility.best_wheel(card, driver, system, python)
    if wheel is None:
        wheel = compatibility.best_wheel(card, None, system, python)
        if wheel is not None and driver is not None:
            steps += update_driver(facts, compatibility.minimum_driver(wheel.cuda, system))
    if wheel is None:
        return [Fix(text="no-wheel-for-card", params={"capability": card or "?", "python": python or "?"})]
    if driver is None:
        minimum = compatibility.minimum_driver(wheel.cuda, system)
        steps.append(Fix(text="needs-driver", params={"minimum": minimum, "cuda": wheel.cuda}))
    return [*steps, *install_wheel(facts, wheel)]


def install_wheel(facts: Facts, wheel: compatibility.Wheel, exact: str | None = None) -> list[Fix]:
    """This very wheel in place of the torch that is there. Pinned unless it is the newest: pip would take a newer torch
    from the same index, which may have dropped the card. torchvision comes along: it must fit its torch to the digit."""
    pinned = exact or (None if wheel.torch == compatibility.newest_torch() else f"{wheel.torch}.*")
    torch = f'"torch=={pinned}"' if pinned else "torch"
    what = f"{torch} torchvision --index-url {compatibility.index_url(wheel.variant)}"
    installer = queries.known(facts.torch.installer)
    if installer == "uv":  # its environments have no pip
        return [Fix(command=f"uv pip install --python {python_command(facts)} --reinstall {what}")]
    steps = []
    if installer == "conda":
        steps.append(Fix(command="conda remove -y --force pytorch"))
    elif facts.torch.status != "not-installed":
        steps.append(pip(facts, "uninstall -y torch torchvision torchaudio"))
    steps.append(pip(facts, f"install {what}"))
    if installer == "conda":
        steps.append(Fix(text="conda-instead"))
    return steps


def update_driver(facts: Facts, minimum: str) -> list[Fix]:
    """Steps that bring the NVIDIA driver to at least `minimum` on this system."""
    card = queries.capability(facts)
    wanted = compatibility.minimum_driver_of_card(card) if card else None
    if wanted and at_least(wanted, minimum):
        minimum = wanted
    key = {"Windows": "driver-windows", "Darwin": "driver-macos"}.get(queries.system(facts), "driver-linux")
    if facts.system.wsl is True:
        key = "driver-wsl"
    elif queries.in_container(facts):
        key = "driver-host"
    steps = [Fix(text=key, params={"minimum": minimum})]
    distribution = (queries.known(facts.system.distribution) or "").lower()
    for name, command in DRIVER_COMMANDS:
        if key == "driver-linux" and name in distribution:
            return [*steps, Fix(command=command)]
    return steps


# How a distribution builds the driver's kernel module again for the running kernel.
MODULE_COMMANDS = (
    ("ubuntu", "sudo apt install --reinstall linux-headers-$(uname -r) && sudo dkms autoinstall && sudo modprobe nvidia"),
    ("mint", "sudo apt install --reinstall linux-headers-$(uname -r) && sudo dkms autoinstall && sudo modprobe nvidia"),
    ("pop", "sudo apt install --reinstall linux-headers-$(uname -r) && sudo dkms autoinstall && sudo modprobe nvidia"),
    ("debian", "sudo apt install --reinstall linux-headers-$(uname -r) && sudo dkms autoinstall && sudo modprobe nvidia"),
    ("fedora", "sudo dnf install kernel-devel-$(uname -r) && sudo akmods --force && sudo modprobe nvidia"),
    ("arch", "sudo pacman -Syu linux-headers nvidia-dkms && sudo reboot"),
    ("suse", "sudo zypper install --force kernel-default-devel && sudo dkms autoinstall && sudo modprobe nvidia"),
)

# How a distribution writes its boot image again, so that a blacklist holds from the first second.
BOOT_IMAGE_COMMANDS = (
    ("fedora", "sudo dracut --force"),
    ("red hat", "sudo dracut --force"),
    ("rocky", "sudo dracut --force"),
    ("alma", "sudo dracut --force"),
    ("centos", "sudo dracut --force"),
    ("suse", "sudo dracut --force"),
    ("arch", "sudo mkinitcpio -P"),
    ("manjaro", "sudo mkinitcpio -P"),
)


def by_distribution(facts: Facts, table: tuple[tuple[str, str], ...], otherwise: str | None = None) -> str | None:
    """The command of this distribution, found by a word of its name."""
    distribution = (queries.known(facts.system.distribution) or "").lower()
    return next((command for name, command in table if name in distribution), otherwise)


def install_driver(facts: Facts) -> list[Fix]:
    """A driver new enough for the torch that is here, or for the newest wheel that the card can run."""
    system, cuda = queries.system(facts), queries.known(facts.torch.cuda)
    if cuda in (None, "none"):
        wheel = compatibility.best_wheel(queries.capability(facts), None, system, queries.known(facts.python.version))
        cuda = wheel.cuda if wheel else "12"
    return update_driver(facts, compatibility.minimum_driver(cuda or "12", system))


def restart(facts: Facts) -> Fix:
    """The whole machine; from inside a container that is the host's business."""
    if queries.in_container(facts):
        return Fix(text="restart-host")
    if queries.system(facts) == "Linux" and facts.system.wsl is not True:
        return Fix(command="sudo reboot")
    return Fix(text="restart-windows")


def privileged(facts: Facts, command: str) -> Fix:
    """For the administrator: sudo where there is one, on Windows a terminal started as administrator."""
    return Fix(command=command if queries.system(facts) == "Windows" else f"sudo {command}")


def set_variable(facts: Facts, name: str, value: str) -> Fix:
    """For the terminal at hand: a POSIX shell, or PowerShell."""
    return Fix(command=f'$env:{name} = "{value}"' if queries.system(facts) == "Windows" else f"export {name}={value}")


def unset_variable(facts: Facts, name: str) -> list[Fix]:
    """From the terminal at hand; on Windows also from the user's settings, where such variables usually come from."""
    if queries.system(facts) != "Windows":
        return [Fix(command=f"unset {name}"), Fix(text="variable-origin", params={"name": name})]
    lasting = f'[Environment]::SetEnvironmentVariable("{name}", $null, "User")'
    origin = Fix(text="variable-origin-windows", params={"name": name})
    return [Fix(command=f"Remove-Item Env:{name}"), Fix(command=lasting), origin]


def observe(facts: Facts) -> list[Fix]:
    """Where the time goes, measured on the script at hand."""
    path = queries.known(facts.application.script.path) or ""
    script = path if path.endswith(".py") else "train.py"
    return [Fix(text="see-where"), Fix(command=f'flatout run "{script}"' if " " in script else f"flatout run {script}")]


USUAL_CORES = 8.0  # where a paste does not tell


def worker_count(facts: Facts) -> int:
    """Loader workers to begin with. An estimate; `flatout tune` measures."""
    usable = queries.known(facts.processor.usable) or queries.known(facts.processor.cores) or USUAL_CORES
    return worker_estimate.estimate(usable, queries.system(facts) or "", len(queries.gpus(facts)))
