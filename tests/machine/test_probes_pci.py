"""Devices on the bus: what each system's own tools and files say, with and without a driver."""

from __future__ import annotations

import json

import pytest
from probe_worlds import h200_vm, pci_device, world, write

from flatout.base.records import Missing
from flatout.machine.probe_host import Output
from flatout.machine.probes import laptop, pci, pci_macos, pci_windows

PCI_IDS = """\
# a piece of the table
1002  Advanced Micro Devices, Inc. [AMD/ATI]
\t1681  Rembrandt [Radeon 680M]
\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX]
10de  NVIDIA Corporation
\t28a1  AD107M [GeForce RTX 4050 Max-Q / Mobile]
\t\t1043 1234  A subsystem
\t2684  AD102 [GeForce RTX 4090]
8086  Intel Corporation
\t56a0  DG2 [Arc A770]
\t9a49  TigerLake-LP GT2 [Iris Xe Graphics]
C 00  Unclassified device
"""


def hybrid_laptop(root, **more):
    write(root, "/usr/share/misc/pci.ids", PCI_IDS)
    pci_device(root, "0000:00:02.0", "8086:9a49", "030000", "i915", current_link_width="0", max_link_width="255")
    state = {"power_state": "D3cold", "current_link_width": "63", "current_link_speed": "Unknown"}
    pci_device(root, "0000:01:00.0", "10de:28a1", "030200", **{"driver": "nvidia", **state, **more})
    write(root, "/sys/class/dmi/id/chassis_type", "10\n")
    write(root, "/sys/class/power_supply/BAT0/type", "Battery\n")
    write(root, "/sys/class/power_supply/ACAD/type", "Mains\n")
    write(root, "/sys/class/power_supply/ACAD/online", "0\n")
    write(root, "/sys/class/power_supply/hidpp_battery_0/type", "Battery\n")
    write(root, "/sys/class/power_supply/hidpp_battery_0/scope", "Device\n")


def test_hybrid_laptop_with_a_sleeping_card(tmp_path):
    hybrid_laptop(tmp_path)
    found = pci.hardware(world(tmp_path))
    integrated, discrete = found.pci
    assert (integrated.vendor, integrated.kind, integrated.kernel_driver) == ("intel", "integrated", "i915")
    assert integrated.name == "TigerLake-LP GT2 [Iris Xe Graphics]"
    assert integrated.link_width == integrated.link_width_max == Missing("not-reported")
    assert (discrete.vendor, discrete.kind, discrete.kernel_driver) == ("nvidia", "discrete", "nvidia")
    assert discrete.name == "AD107M [GeForce RTX 4050 Max-Q / Mobile]"
    assert discrete.power_state == "D3cold"
    assert discrete.link_width == discrete.link_gts == Missing("asleep")
    assert (found.laptop, found.on_battery) == (True, True)


def test_nouveau_is_bound(tmp_path):
    hybrid_laptop(tmp_path, driver="nouveau", power_state="D0", current_link_width="8", max_link_width="16")
    card = pci.devices(world(tmp_path))[1]
    assert card.kernel_driver == "nouveau"
    assert (card.link_width, card.link_width_max) == (8, 16)


def test_no_driver_is_bound(tmp_path):
    pci_device(tmp_path, "0000:01:00.0", "10de:2684", "030000")
    (card,) = pci.devices(world(tmp_path))
    assert card.kernel_driver == "none"
    assert card.name == Missing("not-found", "pci.ids")


def test_h200_in_a_virtual_machine(tmp_path):
    h200_vm(tmp_path)
    (card,) = pci.devices(world(tmp_path))
    assert (card.address, card.name, card.kind) == ("0000:00:06.0", "NVIDIA H200", "discrete")
    assert (card.link_width, card.link_width_max, card.link_gts, card.link_gts_max) == (16, 16, 32.0, 32.0)
    assert (card.vendor_id, card.device_id, card.power_state) == ("10de", "2335", "D0")


@pytest.mark.parametrize(
    ("numbers", "address", "kind"),
    [
        ("1002:1681", "0000:05:00.0", "integrated"),
        ("1002:744c", "0000:03:00.0", "discrete"),
        ("1002:ffff", "0000:03:00.0", "unknown"),
        ("8086:56a0", "0000:03:00.0", "discrete"),
        ("1a03:2000", "0000:03:00.0", "unknown"),
    ],
)
def test_integrated_or_discrete(tmp_path, numbers, address, kind):
    write(tmp_path, "/usr/share/hwdata/pci.ids", PCI_IDS)
    pci_device(tmp_path, address, numbers, "030000")
    assert pci.devices(world(tmp_path))[0].kind == kind


LSPCI = """\
0000:00:02.0 VGA compatible controller [0300]: Intel Corporation TigerLake-LP GT2 [Iris Xe Graphics] [8086:9a49] (rev 01)
\tSubsystem: ASUSTeK Computer Inc. Device [1043:1234]
\tKernel driver in use: i915
0000:00:1f.0 ISA bridge [0601]: Intel Corporation Device [8086:a082]
\tKernel driver in use: lpc
01:00.0 3D controller [0302]: NVIDIA Corporation AD107M [GeForce RTX 4050 Max-Q / Mobile] [10de:28a1] (rev a1)
\tKernel modules: nvidiafb, nouveau
"""


def test_lspci_where_there_is_no_sysfs(tmp_path):
    integrated, discrete = pci.devices(world(tmp_path, {"lspci": LSPCI}))
    assert (integrated.kernel_driver, integrated.kind) == ("i915", "integrated")
    assert (discrete.address, discrete.kernel_driver) == ("0000:01:00.0", "none")
    assert discrete.name == "NVIDIA Corporation AD107M [GeForce RTX 4050 Max-Q / Mobile]"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Output(code=None), "not-found"),
        (Output(code=-9, timed_out=True), "probe-timeout"),
        (Output(code=1, stderr="pcilib: Cannot open /proc/bus/pci"), "unreadable"),
    ],
)
def test_neither_sysfs_nor_lspci(tmp_path, answer, reason):
    assert pci.devices(world(tmp_path, {"lspci": answer})).reason == reason


@pytest.mark.parametrize(
    ("path", "text", "switch"),
    [
        ("/sys/devices/platform/asus-nb-wmi/dgpu_disable", "1\n", "eco"),
        ("/sys/devices/platform/asus-nb-wmi/gpu_mux_mode", "0\n", "discrete"),
        ("/etc/prime-discrete", "on-demand\n", "hybrid"),
        ("/etc/prime-discrete", "off\n", "integrated"),
        ("/etc/udev/rules.d/50-remove-nvidia.rules", "x", "integrated"),
        ("/etc/supergfxd.conf", '{"mode": "Integrated"}', "integrated"),
    ],
)
def test_graphics_switch(tmp_path, path, text, switch):
    write(tmp_path, path, text)
    assert laptop.gpu_switch(world(tmp_path)) == switch


def test_broken_switch_configuration(tmp_path):
    write(tmp_path, "/etc/supergfxd.conf", "{")
    assert laptop.gpu_switch(world(tmp_path)).reason == "unreadable"


def test_a_desktop_is_no_laptop(tmp_path):
    write(tmp_path, "/sys/class/dmi/id/chassis_type", "3\n")
    here = world(tmp_path)
    assert laptop.is_laptop(here) is False
    assert laptop.on_battery(here).reason == "not-applicable"


WINDOWS = {
    "video": [
        {
            "Name": "Intel(R) UHD Graphics",
            "PNPDeviceID": "PCI\\VEN_8086&DEV_9BC4&SUBSYS_0&REV_05\\3&11583659&0&10",
            "DriverVersion": "31.0.101.2111",
            "Status": "OK",
            "ConfigManagerErrorCode": 0,
        },
        {
            "Name": "NVIDIA GeForce RTX 4050 Laptop GPU",
            "PNPDeviceID": "PCI\\VEN_10DE&DEV_28A1&SUBSYS_0&REV_A1\\4&1FC990D7&0&0008",
            "DriverVersion": "32.0.15.6094",
            "Status": "Error",
            "ConfigManagerErrorCode": 43,
        },
    ],
    "battery": {"BatteryStatus": 1},
    "chassis": [10],
}


def test_windows_by_cim(tmp_path):
    text = "\ufeffsome profile's greeting\n" + json.dumps(WINDOWS)
    found = pci_windows.hardware(world(tmp_path, {"powershell.exe": text}, platform="Windows"))
    integrated, discrete = found.pci
    assert (integrated.vendor, integrated.kind, integrated.kernel_driver) == ("intel", "integrated", "intel")
    assert (discrete.vendor, discrete.kind, discrete.device_id) == ("nvidia", "discrete", "28a1")
    assert discrete.kernel_driver == "none"  # code 43: Windows has stopped this device
    assert (found.laptop, found.on_battery) == (True, True)


def test_windows_with_one_card_and_no_driver(tmp_path):
    one = {"Name": "Microsoft Basic Display Adapter", "PNPDeviceID": "PCI\\VEN_10DE&DEV_2684\\0", "ConfigManagerErrorCode": 0}
    answer = json.dumps({"video": one, "battery": [], "chassis": 3})
    found = pci_windows.hardware(world(tmp_path, {"powershell.exe": answer}, platform="Windows"))
    (card,) = found.pci
    assert (card.vendor, card.kernel_driver) == ("nvidia", "none")
    assert (found.laptop, found.on_battery) == (False, Missing("not-applicable"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Output(code=None), "not-found"),
        (Output(code=-9, timed_out=True), "probe-timeout"),
        ("拒绝访问。", "unreadable"),
        ("{", "unreadable"),
    ],
)
def test_windows_without_an_answer(tmp_path, answer, reason):
    found = pci_windows.hardware(world(tmp_path, {"powershell.exe": answer}, platform="Windows"))
    assert found.pci.reason == found.laptop.reason == reason


MAC = {
    "SPDisplaysDataType": [
        {
            "_name": "Apple M3",
            "sppci_bus": "spdisplays_builtin",
            "sppci_model": "Apple M3",
            "spdisplays_vendor": "sppci_vendor_Apple",
        },
        {
            "_name": "AMD Radeon Pro 5500M",
            "sppci_bus": "spdisplays_pcie_device",
            "sppci_model": "AMD Radeon Pro 5500M",
            "spdisplays_vendor": "AMD (0x1002)",
            "spdisplays_device-id": "0x7340",
        },
    ]
}


def test_macos_by_system_profiler(tmp_path):
    commands = {"system_profiler": json.dumps(MAC), "pmset": "Now drawing from 'AC Power'\n -InternalBattery-0 (id=1)\t100%"}
    found = pci_macos.hardware(world(tmp_path, commands, platform="Darwin"))
    apple, amd = found.pci
    assert (apple.vendor, apple.kind, apple.name) == ("apple", "integrated", "Apple M3")
    assert (amd.vendor, amd.kind, amd.device_id) == ("amd", "discrete", "7340")
    assert (found.laptop, found.on_battery) == (True, False)


@pytest.mark.parametrize("answer", ["", "[]", '{"SPDisplaysDataType": 3}', '{"SPDisplaysDataType": ["x"]}'])
def test_macos_garbage(tmp_path, answer):
    found = pci_macos.hardware(world(tmp_path, {"system_profiler": answer}, platform="Darwin"))
    assert found.pci.reason == "unreadable"
