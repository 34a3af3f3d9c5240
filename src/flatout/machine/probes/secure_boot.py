"""Whether Secure Boot is on: then the kernel takes only signed modules."""

from __future__ import annotations

from flatout.base.records import Missing
from flatout.machine.machine_facts import Driver
from flatout.machine.probe_host import World

LIMIT_S = 2.0
VARIABLE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def driver(world: World) -> Driver:
    return Driver(secure_boot=secure_boot(world))


def secure_boot(world: World) -> bool | Missing:
    try:
        # Four bytes of attributes, then the value.
        value = world.path(VARIABLE).read_bytes()
        if len(value) == 5:
            return value[4] == 1
    except OSError:
        pass
    if world.path("/sys/firmware").exists() and not world.path("/sys/firmware/efi").exists():
        return False  # started by a BIOS, or a virtual machine without firmware: there is nothing to be secured
    output = world.run(["mokutil", "--sb-state"], LIMIT_S)
    text = output.stdout.lower()
    if output.code is not None and "secureboot " in text:
        return "enabled" in text
    return Missing("unreadable", VARIABLE.rsplit("/", 1)[0])
