"""Repairs that several rules end in, as commands for this very system, interpreter, card and driver."""

from __future__ import annotations

from flatout.doctor import seen
from flatout.doctor.model import Fix
from flatout.machine import compatibility
from flatout.machine.model import Facts
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
    path = seen.known(facts.python.path) or "python"
    return f'"{path}"' if " " in path or "\\" in path else path


def pip(facts: Facts, arguments: str) -> Fix:
    return Fix(command=f"{python_command(facts)} -m pip {arguments}")


def reinstall_torch(facts: Facts) -> list[Fix]:
    """Update the driver first where no wheel for the card runs on it; then the newest wheel that fits all four."""
    card, driver = seen.capability(facts), seen.known(facts.driver.version)
    system, python = seen.system(facts), seen.known(facts.python.version)
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
    return [*steps, pip(facts, f"install --force-reinstall torch --index-url {compatibility.index_url(wheel.variant)}")]


def update_driver(facts: Facts, minimum: str) -> list[Fix]:
    """Steps that bring the NVIDIA driver to at least `minimum` on this system."""
    card = seen.capability(facts)
    wanted = compatibility.minimum_driver_of_card(card) if card else None
    if wanted and at_least(wanted, minimum):
        minimum = wanted
    key = {"Windows": "driver-windows", "Darwin": "driver-macos"}.get(seen.system(facts), "driver-linux")
    if facts.system.wsl is True:
        key = "driver-wsl"
    steps = [Fix(text=key, params={"minimum": minimum})]
    distribution = (seen.known(facts.system.distribution) or "").lower()
    for name, command in DRIVER_COMMANDS:
        if key == "driver-linux" and name in distribution:
            return [*steps, Fix(command=command)]
    return steps
