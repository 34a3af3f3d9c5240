"""Rules of the hardware layer: each found from live facts and from a paste, and not on a healthy machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings import (
    CARD,
    INTEL,
    RULES,
    UBUNTU,
    WINDOWS,
    broken,
    commands,
    find,
    gpu,
    names,
    pasted,
    probed,
    proven,
    seen,
    texts,
    working,
)

from flatout.base import records
from flatout.doctor import page, registry, root_cause
from flatout.doctor.model import Severity
from flatout.machine.machine_facts import Cuda, Driver, Facts, Hardware, PciDevice, System, Torch, Xid

MACHINES = Path(__file__).resolve().parents[1] / "machines"


def test_real_h200_is_healthy():
    facts = records.read(MACHINES / "h200.json", Facts)
    judged = root_cause.judge(facts, registry.all_rules())
    assert judged.crashed == []
    assert judged.healthy
    assert [finding.code for finding in judged.findings] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_pages_have_the_five_headings_and_the_same_keys(rule):
    english, chinese = (page.read(rule.code, language) for language in ("en", "zh"))
    for language, words in (("en", english), ("zh", chinese)):
        headings = [line[3:] for line in words.body.splitlines() if line.startswith("## ")]
        assert tuple(headings) == page.HEADINGS[language]
        assert "https://" in words.body.split("## ")[-1]
    assert english.fix.keys() == chinese.fix.keys()


def test_names_in_explains_do_not_include_the_rule_itself():
    for rule in RULES:
        assert rule.name not in rule.explains


@pytest.mark.parametrize(
    "layers",
    [
        working(),
        working(gpu(pstate="P8", utilisation=0, sm_clock_mhz=210, sm_clock_max_mhz=3105, clock_events=["GPU_IDLE"])),
        working(gpu(pstate="P8", utilisation=35, sm_clock_mhz=210, sm_clock_max_mhz=3105)),  # a desktop, nothing else
        working(gpu(link_width=16, link_width_max=16, link_generation=1, link_generation_max=4, utilisation=0)),
        working(gpu(link_width=8, link_width_max=16, link_generation=4, link_generation_max=4, utilisation=97)),
        working(gpu(persistence=False, compute_mode="exclusive_process", ecc_uncorrected=0, ecc_pending=False)),
        working(
            gpu(
                name="NVIDIA H100 80GB HBM3",
                utilisation=100,
                clock_events=["SW_POWER_CAP"],
                sm_clock_mhz=1400,
                sm_clock_max_mhz=1980,
                pstate="P0",
                power_limit_w=700.0,
                power_limit_default_w=700.0,
            )
        ),
        working(gpu(mig_enabled=True, mig_devices=["MIG-1", "MIG-2"])),
    ],
)
def test_healthy_machines_get_nothing(layers):
    assert [rule.code for rule in RULES if rule.check(probed(layers))] == []


def test_sleeping_laptop_card_is_healthy():
    asleep = PciDevice(vendor="nvidia", kind="discrete", power_state="D3cold", link_width=1, link_width_max=16)
    facts = probed(system=UBUNTU, hardware=Hardware(pci=[INTEL, asleep], laptop=True, gpu_switch="hybrid"))
    assert names(facts) == []


# -- HW101 ---------------------------------------------------------------------------------------------------------


def test_no_gpu_where_the_driver_is_installed():
    layers = broken(
        hardware=Hardware(pci=[INTEL], laptop=False), driver=Driver(nvml_error="nvml-driver-not-loaded", smi="failed")
    )
    finding = proven(find("HW101", probed(layers)))
    assert finding.severity is Severity.FAULT
    assert names(probed(layers)) == ["no-gpu"]
    assert {"seat", "firmware", "cpu"} <= set(texts(finding))


def test_no_gpu_on_windows_looks_in_the_device_manager():
    facts = probed(system=WINDOWS, hardware=Hardware(pci=[INTEL]), driver=Driver(smi="not-found"))
    assert "windows" in texts(find("HW101", facts))


def test_machine_without_a_gpu_is_told_so_and_nothing_else():
    layers = {
        "system": UBUNTU,
        "hardware": Hardware(pci=[]),
        "driver": Driver(smi="not-found", nvml_error="nvml-library-not-found"),
    }
    for torch in (Torch(status="ok", cuda="none", available=False), Torch(status="not-installed"), broken()["torch"]):
        facts = probed(layers, torch=torch)
        assert proven(find("HW101", facts)).severity is Severity.FAULT
        assert names(facts)[0] == "no-gpu"


@pytest.mark.parametrize(
    "facts",
    [
        probed(system=System(name="Darwin"), hardware=Hardware(pci=[])),
        probed(system=System(name="Linux", wsl=True), hardware=Hardware(pci=[])),
        probed(system=UBUNTU),  # nobody could look at the bus
        probed(system=UBUNTU, hardware=Hardware(pci=[PciDevice(vendor="amd", kind="discrete")])),
        pasted("cuda-not-available", hardware=Hardware(pci=[INTEL])),  # a paste names the cards it speaks of
    ],
)
def test_no_gpu_is_not_said_where_nobody_can_know(facts):
    assert find("HW101", facts) is None


# -- HW102 ---------------------------------------------------------------------------------------------------------


def test_hybrid_graphics_by_the_switch():
    layers = broken(hardware=Hardware(pci=[INTEL], laptop=True, gpu_switch="eco"), driver=Driver(smi="failed"))
    assert names(probed(layers)) == ["hybrid-graphics"]
    assert "prime-select on-demand" in commands(find("HW102", probed(layers)))
    windows = probed({**layers, "system": WINDOWS})
    assert "windows-mode" in texts(find("HW102", windows))


def test_hybrid_graphics_by_a_card_that_vanished():
    hardware = Hardware(pci=[INTEL], laptop=True)
    facts = probed(broken(hardware=hardware, driver=Driver(nvml_error="nvml-driver-not-loaded", module_installed=True)))
    assert not proven(find("HW102", facts)).certain
    assert names(facts)[0] == "hybrid-graphics"


def test_hybrid_graphics_pasted():
    assert names(pasted("gpu-switched-off")) == ["hybrid-graphics"]


def test_hybrid_graphics_not_where_the_card_answers():
    layers = working()
    layers["hardware"] = Hardware(pci=[INTEL, CARD], laptop=True, gpu_switch="integrated")
    assert find("HW102", probed(layers)) is None
    assert find("HW102", probed(system=UBUNTU, hardware=Hardware(pci=[INTEL], laptop=True))) is None


# -- HW103 ---------------------------------------------------------------------------------------------------------


def test_pcie_link_by_width_even_idle():
    idle = working(gpu(link_width=1, link_width_max=16, utilisation=0))
    finding = proven(find("HW103", probed(idle)))
    assert finding.severity is Severity.SLOW
    assert not finding.certain
    assert finding.evidence["width"] == 1


def test_pcie_link_by_generation_only_under_load():
    link = {"link_width": 16, "link_width_max": 16, "link_generation": 1, "link_generation_max": 4}
    assert proven(find("HW103", probed(working(gpu(**link, utilisation=95, pstate="P2"))))).certain
    assert find("HW103", probed(working(gpu(**link, utilisation=3, pstate="P8")))) is None


def test_pcie_link_from_the_bus_without_a_driver():
    narrow = PciDevice(vendor="nvidia", kind="discrete", link_width=4, link_width_max=16)
    assert find("HW103", probed(system=UBUNTU, hardware=Hardware(pci=[narrow]))) is not None
    odd = PciDevice(vendor="nvidia", kind="discrete", link_width=4, link_width_max=255)
    assert find("HW103", probed(system=UBUNTU, hardware=Hardware(pci=[odd]))) is None


def test_pcie_link_pasted():
    assert names(pasted(seen("pcie-narrow", width=4, width_max=16))) == ["pcie-link"]
    assert "nvidia-smi" in commands(find("HW103", pasted("pcie-narrow")))
    assert find("HW103", pasted(seen("pcie-narrow", width=16, generation=1))) is None
    assert find("HW103", pasted(seen("healthy-remark", what="pcie-idle"), "pcie-narrow")) is None


# -- HW104 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "certain"),
    [
        (gpu(clock_events=["SW_THERMAL_SLOWDOWN", "SW_POWER_CAP"], temperature_c=87, utilisation=99), True),
        (gpu(clock_events=["HW_SLOWDOWN", "HW_THERMAL_SLOWDOWN"]), True),
        (gpu(clock_events=["HW_SLOWDOWN"], temperature_c=92), False),
        (gpu(temperature_c=93, utilisation=100), False),
    ],
)
def test_thermal_throttle(card, certain):
    facts = probed(working(card))
    finding = proven(find("HW104", facts))
    assert finding.certain is certain
    assert names(facts)[0] == "thermal-throttle"
    assert "TEMPERATURE" in commands(finding)


def test_thermal_throttle_pasted():
    facts = pasted("thermal-slowdown", "power-capped", system=WINDOWS)
    assert names(facts) == ["thermal-throttle"]
    assert "limit-windows" in texts(find("HW104", facts))


@pytest.mark.parametrize(
    "card",
    [
        gpu(clock_events=["GPU_IDLE", "SW_THERMAL_SLOWDOWN"], temperature_c=70),
        gpu(clock_events=["SW_THERMAL_SLOWDOWN"], temperature_c=45, utilisation=0),
        gpu(clock_events=[], temperature_c=91, utilisation=100),  # hot, and not throttled
        gpu(temperature_c=84, utilisation=100),
    ],
)
def test_thermal_throttle_near_misses(card):
    assert find("HW104", probed(working(card))) is None


# -- HW105 ---------------------------------------------------------------------------------------------------------


def test_power_cap_by_a_low_limit():
    low = gpu(power_limit_w=150.0, power_limit_default_w=450.0, power_draw_w=150.0)
    finding = proven(find("HW105", probed(working(low))))
    assert "sudo nvidia-smi -i 0 -pl 450" in commands(finding)
    windows = probed({**working(low), "system": WINDOWS})
    assert "sudo" not in commands(find("HW105", windows))


def test_power_cap_by_the_power_brake():
    braked = gpu(clock_events=["HW_SLOWDOWN", "HW_POWER_BRAKE_SLOWDOWN"], temperature_c=55, utilisation=99)
    assert "supply" in texts(find("HW105", probed(working(braked))))


def test_power_cap_pasted_with_a_complaint():
    capped = Driver(
        version="545.29.06", gpus=[gpu(name="NVIDIA GPU", clock_events=["SW_POWER_CAP"], temperature_c=77, pstate="P2")]
    )
    facts = pasted(seen("low-utilisation", percent=70), driver=capped)
    assert names(facts) == ["power-cap"]
    assert names(pasted("power-capped")) == ["power-cap"]


@pytest.mark.parametrize(
    "card",
    [
        gpu(clock_events=["SW_POWER_CAP"], utilisation=100, power_limit_w=450.0, power_limit_default_w=450.0),
        gpu(clock_events=["SW_POWER_CAP"], utilisation=100),
        gpu(power_limit_w=360.0, power_limit_default_w=450.0),
        gpu(power_limit_w=450.0, power_limit_max_w=600.0),
        gpu(clock_events=["GPU_IDLE", "HW_SLOWDOWN"], temperature_c=40),
    ],
)
def test_power_cap_near_misses(card):
    assert find("HW105", probed(working(card))) is None


def test_battery_is_only_noted():
    layers = {**working(), "hardware": Hardware(pci=[INTEL, CARD], laptop=True, on_battery=True)}
    assert proven(find("HW105", probed(layers))).severity is Severity.NOTE
    assert names(probed(layers)) == []


# -- HW106 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "card",
    [
        gpu(pstate="P8", utilisation=100, sm_clock_mhz=210, sm_clock_max_mhz=3105),
        gpu(pstate="P8", utilisation=99),
        gpu(
            pstate="P0", utilisation=100, sm_clock_mhz=600, sm_clock_max_mhz=1980, clock_events=["APPLICATIONS_CLOCKS_SETTING"]
        ),
    ],
)
def test_low_clocks(card):
    facts = probed(working(card))
    assert names(facts) == ["low-clocks"]
    assert "--reset-gpu-clocks" in commands(find("HW106", facts))


def test_low_clocks_pasted():
    assert names(pasted("stuck-in-low-clocks", seen("low-utilisation", percent=20))) == ["low-clocks"]
    finding = find("HW106", pasted("slow-when-display-off", system=WINDOWS))
    assert texts(finding)[0] == "display"
    assert "windows" in texts(finding)


@pytest.mark.parametrize(
    "card",
    [
        gpu(pstate="P8", utilisation=40, sm_clock_mhz=210, sm_clock_max_mhz=3105),
        gpu(
            pstate="P0", utilisation=100, sm_clock_mhz=700, sm_clock_max_mhz=1590, clock_events=["SW_POWER_CAP"]
        ),  # a T4 at work
        gpu(pstate="P0", utilisation=100, sm_clock_mhz=700, sm_clock_max_mhz=1590),
        gpu(pstate="P2", utilisation=100, sm_clock_mhz=2500, sm_clock_max_mhz=3105, clock_events=[]),
    ],
)
def test_low_clocks_near_misses(card):
    assert find("HW106", probed(working(card))) is None


# -- HW107 ---------------------------------------------------------------------------------------------------------


def test_ecc_pending_or_failed():
    pending = probed(working(gpu(ecc_uncorrected=2, ecc_pending=True, remap_failed=False)))
    assert "--gpu-reset -i 0" in commands(find("HW107", pending))
    failed = probed(working(gpu(ecc_uncorrected=9, ecc_pending=False, remap_failed=True)))
    assert "replace" in texts(find("HW107", failed))
    assert names(failed) == ["ecc"]


def test_ecc_pasted():
    assert names(pasted("ecc-error")) == ["ecc"]
    assert names(pasted(seen("cuda-error", code=214), system=WINDOWS)) == ["ecc"]
    assert names(pasted(seen("xid", number=48))) == ["ecc"]
    assert not proven(find("HW107", pasted(driver=Driver(gpus=[gpu(ecc_uncorrected=1)])))).certain


def test_ecc_near_misses():
    assert find("HW107", probed(working(gpu(ecc_uncorrected=0, ecc_pending=False)))) is None
    assert find("HW107", pasted(seen("xid", number=63))) is None
    repaired = probed(working(gpu(ecc_uncorrected=1, ecc_pending=False, remap_failed=False)))
    assert proven(find("HW107", repaired)).severity is Severity.NOTE


# -- HW108 ---------------------------------------------------------------------------------------------------------


def test_fallen_off_the_bus():
    layers = broken(driver=Driver(nvml_error="nvml-gpu-lost", smi="failed", modules=["nvidia"], xids=[Xid(number=79)]))
    assert names(probed(layers))[0] == "xid79-power"
    finding = find("HW108", probed(layers))
    assert "sudo reboot" in commands(finding)
    assert "cables" in texts(finding)


def test_fallen_off_the_bus_pasted():
    assert names(pasted(seen("xid", number=79))) == ["xid79-power"]
    assert names(pasted("gpu-lost")) == ["xid79-power"]
    windows = pasted("machine-powers-off", system=WINDOWS, driver=Driver(gpus=[gpu(power_limit_default_w=320.0)]))
    assert commands(find("HW108", windows)) == "nvidia-smi -pl 224"


def test_other_xids_are_not_power():
    assert find("HW108", probed(working(xids=[Xid(number=31), Xid(number=43)]))) is None


def test_lost_after_sleep_is_the_drivers_state():
    facts = pasted("gpu-lost", "after-suspend", cuda=Cuda(init_code=999))
    assert names(facts) == ["suspend-resume"]
