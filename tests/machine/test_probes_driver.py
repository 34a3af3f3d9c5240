"""The driver's other witnesses: kernel, device nodes, firmware, kernel log, containers, nvidia-smi."""

from __future__ import annotations

import os
import sys
import time

import pytest
from probe_worlds import VERSION_580, h200_vm, world, write

from flatout.base.records import Missing
from flatout.machine import probe_host as worlds
from flatout.machine.machine_facts import Driver
from flatout.machine.probe_host import Output
from flatout.machine.probes import containers, driver_library, kernel, nvidia_smi, secure_boot, xid


def test_h200(tmp_path):
    h200_vm(tmp_path)
    found = kernel.driver(world(tmp_path))
    assert found.kernel_version == "580.159.04"
    assert found.modules == ["nvidia", "nvidia_uvm"]
    assert found.device_nodes == ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidiactl"]
    assert (found.nvswitch, found.fabric_manager) == (False, Missing("not-applicable"))
    assert found.module_installed == Missing("not-visible")


def test_closed_module_and_garbage_as_version(tmp_path):
    write(tmp_path, "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n")
    assert kernel.kernel_version(world(tmp_path)) == "535.183.01"
    write(tmp_path, "/proc/driver/nvidia/version", b"\xff\xfe\x00garbage")
    assert kernel.kernel_version(world(tmp_path)).reason == "unreadable"


def test_unreadable_proc(tmp_path):
    (tmp_path / "proc/modules").mkdir(parents=True)  # reading a folder fails, also for root
    assert kernel.modules(world(tmp_path)).reason == "unreadable"
    assert kernel.kernel_version(world(tmp_path)).reason == "not-found"


@pytest.mark.parametrize(
    ("line", "there"),
    [
        ("updates/dkms/nvidia.ko.zst: kernel/drivers/video/backlight.ko", True),
        ("updates/dkms/nvidia-current.ko: x.ko", True),
        ("kernel/drivers/video/fbdev/nvidia/nvidiafb.ko:", False),
        ("kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst: a.ko", False),
    ],
)
def test_module_on_disk_for_this_kernel(tmp_path, line, there):
    write(tmp_path, "/proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
    write(tmp_path, "/lib/modules/6.8.0-45-generic/modules.dep", f"kernel/a.ko:\n{line}\n")
    assert kernel.module_installed(world(tmp_path)) is there


@pytest.mark.parametrize(
    ("state", "installed", "expected"),
    [
        ("active", True, "active"),
        ("inactive", True, "inactive"),
        ("failed", True, "inactive"),
        ("inactive", False, "not-installed"),
    ],
)
def test_fabric_manager(tmp_path, state, installed, expected):
    write(tmp_path, "/dev/nvidia-nvswitchctl")
    if installed:
        write(tmp_path, "/usr/bin/nv-fabricmanager")
    found = kernel.driver(
        world(tmp_path, {"systemctl is-active": Output(code=0 if state == "active" else 3, stdout=state + "\n")})
    )
    assert (found.nvswitch, found.fabric_manager) == (True, expected)


@pytest.mark.parametrize(("value", "on"), [(b"\x06\0\0\0\1", True), (b"\x06\0\0\0\0", False)])
def test_secure_boot_by_its_variable(tmp_path, value, on):
    write(tmp_path, secure_boot.VARIABLE, value)
    assert secure_boot.secure_boot(world(tmp_path)) is on


def test_secure_boot_otherwise(tmp_path):
    assert secure_boot.secure_boot(world(tmp_path)).reason == "unreadable"
    assert secure_boot.secure_boot(world(tmp_path, {"mokutil": "SecureBoot enabled\n"})) is True
    (tmp_path / "sys/firmware").mkdir(parents=True)
    assert secure_boot.secure_boot(world(tmp_path)) is False  # started by a BIOS


LOG = """\
[    5.0] nvidia: loading out-of-tree module taints kernel.
[  812.1] NVRM: Xid (PCI:0000:01:00): 31, pid=4242, name=python, Ch 00000008, intr 00000000. MMU Fault
[ 9000.2] NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[ 9001.3] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.
"""


def test_xids_of_the_kernel_log(tmp_path):
    found = xid.xids(world(tmp_path, {"dmesg": LOG}))
    assert [(each.number, each.pci) for each in found] == [(31, "0000:01:00"), (79, "0000:01:00")]
    assert found[1].text == "GPU has fallen off the bus."


def test_log_of_the_journal_where_dmesg_is_forbidden(tmp_path):
    refused = Output(code=1, stderr="dmesg: read kernel buffer failed: Operation not permitted\n")
    assert [each.number for each in xid.xids(world(tmp_path, {"dmesg": refused, "journalctl": LOG}))] == [31, 79]
    nobody = xid.xids(world(tmp_path, {"dmesg": refused}))
    assert nobody.reason == "kernel-log-unreadable"
    assert "Operation not permitted" in nobody.detail
    assert xid.xids(world(tmp_path, {"dmesg": "[0.0] Linux version 6\n"})) == []


def test_container_without_devices(tmp_path):
    write(tmp_path, "/.dockerenv")
    write(tmp_path, "/dev/null")
    write(tmp_path, "/proc/driver/nvidia/version", VERSION_580)
    here = world(tmp_path)
    assert containers.system(here).container == "docker"
    assert kernel.driver(here).device_nodes == []


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("/run/.containerenv", "", "podman"),
        ("/var/run/secrets/kubernetes.io/x", "", "kubernetes"),
        ("/proc/1/cgroup", "0::/kubepods/besteffort/pod1\n", "kubernetes"),
        ("/proc/1/cgroup", "12:cpu:/lxc/101\n", "lxc"),
        ("/run/systemd/container", "systemd-nspawn\n", "other"),
        ("/run/systemd/container", "wsl\n", "none"),
        ("/proc/1/cgroup", "0::/init.scope\n", "none"),
    ],
)
def test_kinds_of_container(tmp_path, path, text, kind):
    write(tmp_path, path, text)
    assert containers.container(world(tmp_path)) == kind


def test_wsl2(tmp_path):
    write(tmp_path, "/proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n")
    write(tmp_path, "/dev/dxg")
    here = world(tmp_path)
    found = containers.system(here)
    assert (found.wsl, found.container, found.release) == (True, "none", "5.15.153.1-microsoft-standard-WSL2")
    assert kernel.device_nodes(here) == ["/dev/dxg"]


SMI = """\
Sun Nov 15 01:21:07 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
"""
ROW = "0, NVIDIA H200, GPU-00000000-0000-0000-0000-000000000000, 00000000:00:06.0, 143771, 143156, 580.159.04"


def test_smi_as_second_witness(tmp_path):
    found = nvidia_smi.driver(world(tmp_path, {"nvidia-smi": SMI, "nvidia-smi --query-gpu": f"{ROW}, 9.0\n"}))
    assert (found.smi, found.version, found.cuda) == ("ok", "580.159.04", "13.0")
    (card,) = found.gpus
    assert (card.name, card.capability, card.memory_total_bytes) == ("NVIDIA H200", "9.0", 143771 << 20)


def test_newer_drivers_name_the_versions_differently(tmp_path):
    text = "| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |\n"
    found = nvidia_smi.driver(world(tmp_path, {"nvidia-smi": text}))
    assert (found.version, found.cuda) == ("610.43.02", "13.3")


def test_an_old_smi_refuses_a_field(tmp_path):
    refusal = Output(code=2, stdout='Field "compute_cap" is not a valid field to query.\n')
    answers = {"nvidia-smi": SMI, f"nvidia-smi --query-gpu={','.join(nvidia_smi.FIELDS)},compute_cap": refusal}
    found = nvidia_smi.driver(world(tmp_path, {**answers, f"nvidia-smi --query-gpu={','.join(nvidia_smi.FIELDS)}": ROW + "\n"}))
    assert found.gpus[0].memory_free_bytes == 143156 << 20
    assert found.gpus[0].capability == Missing("not-reported")


def test_smi_reports_a_mismatch(tmp_path):
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 560.35\n"
    found = nvidia_smi.driver(world(tmp_path, {"nvidia-smi": Output(code=18, stdout=text)}))
    assert (found.smi, found.version) == ("failed", "560.35")
    assert found.smi_message == "Failed to initialize NVML: Driver/library version mismatch"


def executable(folder, body):
    file = folder / "nvidia-smi"
    file.write_text(f"#!{sys.executable} -S\n{body}", encoding="utf-8")
    file.chmod(0o755)
    return worlds.live({**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})


@pytest.fixture
def smi_on_path(tmp_path, monkeypatch):
    def make(body):
        # The child is looked up on our own PATH, as subprocess does.
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return executable(tmp_path, body)

    return make


@pytest.mark.skipif(os.name == "nt", reason="a script with a first line for the shell")
def test_smi_that_hangs(smi_on_path, monkeypatch):
    monkeypatch.setattr(nvidia_smi, "LIMIT_S", 0.5)
    began = time.monotonic()
    found = nvidia_smi.driver(smi_on_path("import time, os\nos.fork()\ntime.sleep(60)\n"))
    assert time.monotonic() - began < 5
    assert found.smi == "timeout"
    assert found.smi_message.reason == "probe-timeout"


@pytest.mark.skipif(os.name == "nt", reason="a script with a first line for the shell")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("import os\nos.write(1, bytes(range(256)) * 40)\n", "garbled"),
        ("import os\nos.write(1, '无法与NVIDIA驱动程序通信。'.encode('gb18030'))\n", "garbled"),
        ("print('无法与NVIDIA驱动程序通信。')\nraise SystemExit(9)\n", "failed"),
        ("import os\nwhile True: os.write(1, b'x' * 65536)\n", "timeout"),
        ("pass\n", "garbled"),
    ],
)
def test_smi_that_prints_something_else(smi_on_path, monkeypatch, body, status):
    monkeypatch.setattr(nvidia_smi, "LIMIT_S", 1.0 if status == "timeout" else 10.0)
    found = nvidia_smi.driver(smi_on_path(body))
    assert found.smi == status
    assert isinstance(found.gpus, Missing)
    if "print(" in body:
        assert found.smi_message == "无法与NVIDIA驱动程序通信。"


@pytest.mark.parametrize("text", ["a, b\n", "x, y, z, 1, 2, 3, 4\n", "\x00\x01\n"])
def test_a_garbled_table(text):
    assert nvidia_smi.parse(text, nvidia_smi.FIELDS).reason == "unreadable"


def test_library_on_disk_after_an_update_without_reboot(tmp_path, monkeypatch):
    why = Missing("nvml-version-mismatch", "RM has detected an NVML/RM version mismatch.")
    monkeypatch.setattr("flatout.machine.nvml.driver", lambda: Driver(version=why, cuda=why, gpus=why, nvml_error=why.reason))
    write(tmp_path, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.560.35.03")
    write(tmp_path, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 560.35\n"
    found = driver_library.driver(world(tmp_path, {"nvidia-smi": Output(code=18, stdout=text)}))
    assert (found.version, found.smi, found.nvml_error) == ("560.35.03", "failed", "nvml-version-mismatch")
    assert found.gpus == why


def test_nvml_that_hangs_leaves_the_second_witness(tmp_path, monkeypatch):
    monkeypatch.setattr(driver_library, "NVML_LIMIT_S", 0.1)
    monkeypatch.setattr("flatout.machine.nvml.driver", lambda: time.sleep(3))
    found = driver_library.driver(world(tmp_path, {"nvidia-smi": SMI, "nvidia-smi --query-gpu": ROW + ", 9.0\n"}))
    assert (found.nvml_error, found.smi, found.version) == ("probe-timeout", "ok", "580.159.04")
