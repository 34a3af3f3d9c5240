"""Xid errors of the NVIDIA driver in the kernel log since boot."""

from __future__ import annotations

import re

from flatout.base.records import Missing
from flatout.machine.machine_facts import Driver, Xid
from flatout.machine.probe_host import World

LIMIT_S = 3.0
# The journal of months is slow to read from its beginning: the last lines since boot are enough.
SOURCES = (["dmesg"], ["journalctl", "-k", "-b", "-n", "5000", "-o", "cat", "--no-pager", "-q"])
MOST = 50
# NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python, GPU has fallen off the bus.
LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")


def driver(world: World) -> Driver:
    return Driver(xids=xids(world))


def xids(world: World) -> list[Xid] | Missing:
    refusals: list[str] = []
    for command in SOURCES:
        output = world.run(command, LIMIT_S)
        if output.code == 0 and output.stdout.strip():
            return parse(output.stdout)
        if output.timed_out:
            refusals.append(f"{command[0]}: time limit")
        elif output.code is not None:
            refusals.append(f"{command[0]}: {(output.stderr or 'nothing').strip().splitlines()[0][:120]}")
    return Missing("kernel-log-unreadable", "; ".join(refusals))


def parse(log: str) -> list[Xid]:
    """The newest of each number and card, in the order in which each first appeared."""
    found: dict[tuple[int, str], Xid] = {}
    for match in LINE.finditer(log):
        number = int(match[2])
        found[number, match[1]] = Xid(number=number, pci=match[1], text=(match[3] or "").strip()[:200])
    return list(found.values())[:MOST]
