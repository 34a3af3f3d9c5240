"""The rules of the PyTorch layer: on a live machine, on a paste, and silent on what is healthy."""

from __future__ import annotations

import pytest

from flatout.base.records import Missing
from flatout.doctor import page, registry
from flatout.doctor.model import Severity
from flatout.doctor.root_cause import judge
from flatout.machine.machine_facts import (
    Application,
    Cuda,
    Driver,
    Extension,
    Facts,
    Gpu,
    Hardware,
    Interpreter,
    PciDevice,
    Symptom,
    System,
    Torch,
)

CODES = [f"PT4{number:02}" for number in range(1, 15)]
BEFORE_BLACKWELL = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
CU128 = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
RTX_5090 = Gpu(index=0, name="NVIDIA GeForce RTX 5090", capability="12.0")
RTX_4090 = Gpu(index=0, name="NVIDIA GeForce RTX 4090", capability="8.9")
GTX_1080 = Gpu(index=0, name="NVIDIA GeForce GTX 1080", capability="6.1")


def working(**changes):
    values = {"status": "ok", "version": "2.9.1+cu128", "cuda": "12.8", "hip": "none", "available": True, "kernel": "ok"}
    return Torch(**{**values, "arch_list": CU128, "installer": "pip", "triton": "3.5.1", **changes})


def live(system="Linux", cards=(RTX_4090,), driver="580.65.06", torch=None, python="3.12.3", **more):
    """A machine as the probes describe it: healthy where nothing else is said."""
    windows = system == "Windows"
    return Facts(
        system=System(name=system, distribution="Windows 11" if windows else "Ubuntu 24.04 LTS", wsl=False, container="none"),
        python=Interpreter(path=r"C:\my env\python.exe" if windows else "/opt/venv/bin/python", version=python, bits=64),
        hardware=Hardware(pci=[PciDevice(vendor=card.vendor, name=card.name, kind="discrete") for card in cards]),
        driver=Driver(version=driver, gpus=list(cards), nvml_error="none", smi="ok"),
        cuda=Cuda(init_code=0, device_count=len(cards)),
        torch=torch or working(),
        **more,
    )


def without_gpu(system="Linux", **more):
    return Facts(system=System(name=system), hardware=Hardware(pci=[]), driver=Driver(gpus=[]), **more)


def pasted(*symptoms, **parts):
    return Facts(source="pasted", symptoms=list(symptoms), **parts)


def symptom(code, /, **params):
    return Symptom(code=code, params=params)


def found(code, facts):
    rule = registry.find(code)
    assert rule is not None
    return rule.check(facts)


def commands(finding):
    return " && ".join(step.command for step in finding.fix if step.command)


def reads_well(finding):
    """The sentence has all its values in both languages, and every step of the repair its words."""
    for language in ("en", "zh"):
        words = page.read(finding.code, language)
        assert words.sentence(finding.evidence) == words.says.format(**{k: page._shown(v) for k, v in finding.evidence.items()})
        for step in finding.fix:
            assert step.command or words.fix[step.text].format(**step.params)


def root(facts):
    cause = judge(facts, registry.all_rules()).root_cause
    return cause.name if cause else None


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_a_healthy_machine_gets_nothing(code, system):
    assert found(code, live(system)) is None
    assert found(code, Facts()) is None
    assert found(code, pasted()) is None


@pytest.mark.parametrize("code", CODES)
def test_pages_have_the_same_keys_in_both_languages(code):
    english, chinese = page.read(code, "en"), page.read(code, "zh")
    assert english.fix.keys() == chinese.fix.keys()
    for language, words in (("en", english), ("zh", chinese)):
        headings = [line.removeprefix("## ") for line in words.body.splitlines() if line.startswith("## ")]
        assert tuple(headings) == page.HEADINGS[language]


# -- PT401 cpu-only-wheel --------------------------------------------------------------------------------------------------


def cpu(**changes):
    return working(version="2.9.1+cpu", cuda="none", available=False, kernel=Missing("no-gpu"), arch_list=[], **changes)


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_a_cpu_build_beside_a_card(system):
    facts = live(system, torch=cpu())
    finding = found("PT401", facts)
    assert finding.certain
    assert "--index-url https://download.pytorch.org/whl/cu1" in commands(finding)
    assert ('"C:\\my env\\python.exe" -m pip' if system == "Windows" else "/opt/venv/bin/python -m pip") in commands(finding)
    reads_well(finding)
    assert root(facts) == "cpu-only-wheel"


def test_a_cpu_build_without_a_card_is_what_it_should_be():
    assert found("PT401", without_gpu(torch=cpu())) is None
    assert root(without_gpu(torch=cpu())) == "no-gpu"
    mac = Facts(system=System(name="Darwin"), torch=cpu())
    assert found("PT401", mac) is None


@pytest.mark.parametrize("version", ["1.7.1+cpu", "2.2.1+cpu", "1.11.0 py3.8_cpu_0"])
def test_a_pasted_version_is_enough_where_the_gpu_is_missed(version):
    facts = pasted(symptom("cuda-not-available"), torch=Torch(version=version))
    finding = found("PT401", facts)
    assert finding.certain is False
    reads_well(finding)
    assert root(facts) == "cpu-only-wheel"
    assert root(pasted(torch=Torch(version=version))) == "cpu-only-wheel"


def test_torch_says_that_it_was_not_compiled_with_cuda():
    facts = pasted(symptom("torch-not-compiled-with-cuda"), system=System(name="Windows"))
    assert found("PT401", facts) is not None
    assert root(facts) == "cpu-only-wheel"


def test_a_paste_that_shows_no_card_or_asks_for_something_else():
    torch = Torch(version="2.9.1+cpu")
    assert found("PT401", pasted(symptom("cuda-not-available"), torch=torch, driver=Driver(gpus=[]))) is None
    assert found("PT401", pasted(symptom("spawn-bootstrapping"), torch=torch)) is None


def test_a_card_that_no_build_serves_is_not_the_wheels_fault():
    facts = live(cards=(Gpu(index=0, name="GeForce GT 740M", capability="3.0"),), torch=cpu())
    assert found("PT401", facts) is None
    assert root(facts) == "arch-dropped"


def test_conda_and_uv_have_commands_of_their_own():
    conda = found("PT401", live(torch=cpu(installer="conda")))
    assert "conda remove -y --force pytorch" in commands(conda)
    reads_well(conda)
    assert commands(found("PT401", live(torch=cpu(installer="uv")))).startswith("uv pip install --python /opt/venv/bin/python")


def test_a_radeon_beside_a_cpu_build():
    radeon = PciDevice(vendor="amd", name="Radeon RX 7900 XT", kind="discrete")
    finding = found("PT401", Facts(system=System(name="Linux"), hardware=Hardware(pci=[radeon]), torch=cpu()))
    assert finding.fix[0].text == "rocm-wheel"


# -- PT402 arch-not-in-wheel -----------------------------------------------------------------------------------------------


def test_the_machine_of_the_progress_report():
    """Windows 11, RTX 5090, torch 2.7.1+cu118."""
    old = [*BEFORE_BLACKWELL, "sm_37", "compute_37"]
    for torch in (
        Torch(version="2.7.1+cu118"),
        working(version="2.7.1+cu118", cuda="11.8", arch_list=old, kernel=Missing("x")),
    ):
        facts = live("Windows", (RTX_5090,), "576.52", torch)
        finding = found("PT402", facts)
        assert finding.certain
        assert "--index-url https://download.pytorch.org/whl/cu128" in commands(finding)
        assert '"torch==2.11.*"' in commands(finding)  # the newest torch of that CUDA
        reads_well(finding)
        assert root(facts) == "arch-not-in-wheel"
    facts = pasted(system=System(name="Windows"), driver=Driver(gpus=[RTX_5090]), torch=Torch(version="2.7.1+cu118"))
    assert root(facts) == "arch-not-in-wheel"
    assert "/cu13" in commands(found("PT402", facts))


def test_a_driver_that_does_not_know_the_card_comes_first():
    facts = live("Windows", (RTX_5090,), "551.61", Torch(version="2.7.1+cu118", cuda="11.8"))
    finding = found("PT402", facts)
    assert finding.fix[0].text == "driver-windows"
    assert root(facts) == "arch-not-in-wheel"


@pytest.mark.parametrize(
    ("card", "torch"),
    [
        ("NVIDIA GeForce RTX 5090", Torch(version="2.5.0+cu121", cuda="12.1")),
        ("NVIDIA GeForce RTX 5070 Ti", Torch(version="2.6.0.dev20241112+cu121", cuda="12.1")),
        ("NVIDIA GeForce RTX 5090", Torch(version="2.5.1")),
        ("RTX 3090", Torch(version="1.12.0+cu102", cuda="10.2")),
        ("GeForce RTX 3070", Torch(version="1.7.1", arch_list=["sm_37", "sm_50", "sm_60", "sm_70", "sm_75"])),
        ("NVIDIA B200", Torch(version="2.6.0+cu126")),
    ],
)
def test_newer_than_the_list(card, torch):
    facts = pasted(symptom("no-kernel-image"), driver=Driver(gpus=[Gpu(index=0, name=card)]), torch=torch)
    finding = found("PT402", facts)
    assert finding.certain
    reads_well(finding)
    assert root(facts) == "arch-not-in-wheel"


def test_torchs_own_warning_without_anything_else():
    warning = symptom(
        "arch-not-compatible", card="NVIDIA GeForce RTX 5060", capability="sm_120", supported=" ".join(BEFORE_BLACKWELL)
    )
    finding = found("PT402", pasted(warning))
    assert finding.certain
    assert finding.evidence["capability"] == "12.0"
    reads_well(finding)
    assert root(pasted(warning)) == "arch-not-in-wheel"


def test_code_of_the_same_major_number_serves():
    ada = working(version="2.6.0+cu124", cuda="12.4", arch_list=BEFORE_BLACKWELL, kernel=Missing("unknown"))
    assert found("PT402", live(torch=ada)) is None
    warning = symptom("arch-not-compatible", card="RTX 4080", capability="8.9", supported=" ".join(BEFORE_BLACKWELL))
    assert found("PT402", pasted(warning)) is None
    assert root(pasted(warning)) is None


def test_a_message_alone_is_a_guess():
    finding = found("PT402", pasted(symptom("no-kernel-image"), torch=Torch(version="2.5.1+cu121")))
    assert finding.certain is False


def test_one_served_card_makes_the_other_a_note():
    both = live(cards=(RTX_4090, RTX_5090), torch=working(arch_list=BEFORE_BLACKWELL, kernel=Missing("unknown")))
    assert found("PT402", both).severity is Severity.NOTE
    assert root(both) is None


# -- PT403 arch-dropped ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_a_pascal_card_with_a_new_wheel(system):
    torch = working(kernel="CUDA error: no kernel image is available for execution on the device")
    facts = live(system, (GTX_1080,), torch=torch)
    finding = found("PT403", facts)
    assert finding.certain
    assert "https://download.pytorch.org/whl/cu126" in commands(finding)
    reads_well(finding)
    assert root(facts) == "arch-dropped"


def test_a_pasted_pascal_card():
    facts = pasted(driver=Driver(gpus=[Gpu(index=0, name="Tesla P40")]), torch=Torch(version="2.8.0+cu128", cuda="12.8"))
    assert root(facts) == "arch-dropped"


def test_kepler_is_pinned_to_the_last_release_that_has_it():
    facts = live(
        cards=(Gpu(index=0, name="Tesla K80", capability="3.7"),), driver="470.256.02", torch=Torch(version="2.7.1+cu118")
    )
    assert '"torch==2.6.*"' in commands(found("PT403", facts))


def test_a_card_that_no_wheel_has_served_for_years():
    facts = pasted(symptom("cuda-not-available"), driver=Driver(gpus=[Gpu(index=0, name="GeForce GT 740M")]))
    finding = found("PT403", facts)
    assert finding.fix[0].text == "no-wheel-at-all"
    assert root(facts) == "arch-dropped"


def test_the_wheel_for_old_cards_fits_them():
    torch = working(version="2.14.0+cu126", cuda="12.6", arch_list=BEFORE_BLACKWELL)
    assert found("PT403", live(cards=(GTX_1080,), torch=torch)) is None
    assert found("PT403", live(cards=(GTX_1080,), torch=Torch(version="2.14.0+cu126"))) is None


def test_a_message_alone_with_a_new_wheel_points_to_an_old_card():
    facts = pasted(symptom("no-kernel-image"), torch=Torch(version="2.10.0+cu130", cuda="13.0"))
    assert found("PT403", facts).certain is False
    assert found("PT402", facts) is None


# -- PT404 arch-not-in-extension -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_an_extension_without_code_for_the_card(system):
    flash = Extension(name="flash-attn", version="2.7.4", arch_list=["sm_80", "sm_90"])
    facts = live(system, (RTX_5090,), torch=working(extensions=[flash]))
    finding = found("PT404", facts)
    assert finding.certain
    assert "TORCH_CUDA_ARCH_LIST" in commands(finding)
    reads_well(finding)
    assert root(facts) == "arch-not-in-extension"


def test_no_kernel_although_torch_fits():
    torch = Torch(version="2.7.0+cu128", cuda="12.8", available=True)
    facts = pasted(symptom("no-kernel-image"), driver=Driver(gpus=[Gpu(index=0, name="NVIDIA GeForce RTX 5080")]), torch=torch)
    assert found("PT404", facts) is not None
    assert root(facts) == "arch-not-in-extension"


def test_an_extension_that_fits_by_the_binary_rule():
    flash = Extension(name="flash-attn", arch_list=["sm_80", "sm_90"])
    assert found("PT404", live(torch=working(extensions=[flash]))) is None
    assert found("PT404", live(torch=working(extensions=[Extension(name="vllm")]))) is None


# -- PT405 python-version-unsupported --------------------------------------------------------------------------------------


def refused(requirement="torch", versions="none", index="", **parts):
    return pasted(symptom("no-matching-distribution", requirement=requirement, versions=versions, index=index), **parts)


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_a_python_that_torch_does_not_know_yet(system):
    facts = live(system, torch=Torch(status="not-installed"), python="3.16.0")
    finding = found("PT405", facts)
    assert finding.certain
    assert ("py -3.12 -m venv" if system == "Windows" else "python3.12 -m venv") in commands(finding)
    reads_well(finding)
    assert root(facts) == "python-version-unsupported"


def test_a_32_bit_python():
    facts = refused(
        "torch===1.5.1", "0.1.2, 0.1.2.post1", python=Interpreter(version="3.8.3", bits=32), system=System(name="Windows")
    )
    finding = found("PT405", facts)
    assert finding.certain
    assert finding.evidence["python"] == "3.8.3 (32-bit)"
    reads_well(finding)
    assert root(facts) == "python-version-unsupported"


def test_a_release_older_than_this_python():
    facts = refused("torch==1.9.1+cu111", "0.1.2, 0.1.2.post1, 1.11.0", python=Interpreter(version="3.10"))
    assert found("PT405", facts).certain
    assert root(facts) == "python-version-unsupported"


def test_only_placeholders_are_offered():
    assert found("PT405", refused(versions="0.1.2, 0.1.2.post1, 0.1.2.post2")).certain is False
    assert root(refused(versions="0.1.2, 0.1.2.post1, 0.1.2.post2")) == "python-version-unsupported"


def test_a_python_with_torch_is_supported_by_definition():
    assert found("PT405", live(python="3.16.0")) is None
    assert found("PT405", live(torch=Torch(status="not-installed"), python="3.12.3")) is None
    assert found("PT405", refused("numpy==9.9", python=Interpreter(version="3.12"))) is None


# -- PT406 wrong-index-url -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_an_index_that_does_not_exist(system):
    facts = refused(
        "torch==2.10.0",
        index="https://download.pytorch.org/whl/cu131",
        python=Interpreter(version="3.13"),
        system=System(name=system),
    )
    finding = found("PT406", facts)
    assert finding.certain
    assert '"torch==2.10.0" torchvision --index-url https://download.pytorch.org/whl/cu130' in commands(finding)
    reads_well(finding)
    assert root(facts) == "wrong-index-url"


def test_an_index_without_that_release():
    facts = refused(
        "torch==2.6.0", "2.7.0, 2.7.1", "https://download.pytorch.org/whl/cu128", python=Interpreter(version="3.12")
    )
    assert found("PT406", facts).evidence["offered"] == ["cu126", "cu124", "cu118"]
    assert root(facts) == "wrong-index-url"


def test_an_index_that_the_environment_sets():
    settings = Application(environment={"PIP_INDEX_URL": "https://download.pytorch.org/whl/cu127/"})
    facts = live(torch=Torch(status="not-installed"), application=settings)
    assert found("PT406", facts).certain
    assert root(facts) == "wrong-index-url"
    right = Application(environment={"PIP_INDEX_URL": "https://download.pytorch.org/whl/cu128"})
    assert found("PT406", live(torch=Torch(status="not-installed"), application=right)) is None


def test_a_good_index_is_not_blamed():
    facts = refused("torch", "none", "https://download.pytorch.org/whl/cu128", python=Interpreter(version="3.16"))
    assert found("PT406", facts) is None
    assert root(facts) == "python-version-unsupported"


# -- PT407 windows-dll-missing ---------------------------------------------------------------------------------------------

FBGEMM = '[WinError 126] The specified module could not be found. Error loading "C:\\x\\torch\\lib\\fbgemm.dll"'


def test_a_dll_that_windows_does_not_have():
    facts = live("Windows", torch=Torch(status="import-failed", version="2.4.0+cu121", error=FBGEMM))
    finding = found("PT407", facts)
    assert finding.certain
    assert finding.evidence["library"] == "fbgemm.dll"
    assert "winget install --id Microsoft.VCRedist.2015+.x64" in commands(finding)
    reads_well(finding)
    assert root(facts) == "windows-dll-missing"


def test_a_pasted_dll():
    facts = pasted(symptom("dll-not-found", library="fbgemm.dll"), torch=Torch(status="import-failed"))
    reads_well(found("PT407", facts))
    assert root(facts) == "windows-dll-missing"


def test_a_library_of_cuda_has_a_rule_of_its_own():
    assert found("PT407", pasted(symptom("dll-not-found", library="cudnn64_9.dll"))) is None
    assert found("PT407", live("Windows", torch=Torch(status="import-failed", error="ImportError: numpy"))) is None


# -- PT408 wrong-environment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_the_working_torch_is_elsewhere(system):
    torch = Torch(status="not-installed", others=["2.9.1+cu128 in another environment"])
    facts = live(system, torch=torch)
    finding = found("PT408", facts)
    assert ("where python" if system == "Windows" else "which -a python") in commands(finding)
    reads_well(finding)
    assert root(facts) == "wrong-environment"


def test_the_complaint_is_of_another_torch_than_the_one_that_was_asked():
    warning = symptom("arch-not-compatible", capability="sm_120", supported=" ".join(BEFORE_BLACKWELL))
    torch = Torch(version="2.9.0.dev20250729+cu128", cuda="12.8", available=True, devices=["NVIDIA GeForce RTX 5060 Ti"])
    facts = pasted(warning, torch=torch)
    assert found("PT408", facts).certain
    assert root(facts) == "wrong-environment"
    assert root(pasted(symptom("works-elsewhere"), symptom("no-kernel-image"), torch=torch)) == "wrong-environment"


def test_a_cpu_build_stays_the_cause_where_another_torch_is_about():
    facts = live("Windows", torch=cpu(others=["2.0.1+cu117 in another environment"]))
    assert root(facts) == "cpu-only-wheel"


def test_several_environments_are_normal():
    assert found("PT408", live(torch=working(others=["2.5.1+cu121 in another environment"]))) is None
    assert found("PT408", without_gpu(torch=cpu(others=["2.5.1+cu121 in another environment"]))) is None


# -- PT409 triton-missing-windows, PT413 triton-unsupported-card -----------------------------------------------------------


def test_compile_without_triton_on_windows():
    facts = live("Windows", torch=working(triton=Missing("not-installed")), symptoms=[symptom("triton-missing")])
    finding = found("PT409", facts)
    assert finding.severity is Severity.FAULT
    assert 'install -U "triton-windows<3.6"' in commands(finding)
    reads_well(finding)
    assert root(facts) == "triton-missing-windows"


def test_a_pasted_triton_message():
    torch = Torch(version="2.4.1+cu124", cuda="12.4", available=True)
    facts = pasted(symptom("triton-missing"), system=System(name="Windows"), torch=torch)
    reads_well(found("PT409", facts))
    assert root(facts) == "triton-missing-windows"


def test_triton_that_nobody_asked_for():
    merely = live("Windows", torch=working(triton=Missing("not-installed")))
    assert found("PT409", merely).severity is Severity.NOTE
    assert root(merely) is None
    assert found("PT409", without_gpu("Windows", torch=cpu(triton=Missing("not-installed")))) is None
    assert found("PT409", live(torch=working(triton=Missing("not-installed")))) is None


def test_a_card_that_triton_does_not_support():
    torch = working(version="2.14.0+cu126", cuda="12.6", arch_list=BEFORE_BLACKWELL)
    merely = live(cards=(GTX_1080,), torch=torch)
    assert found("PT413", merely).severity is Severity.NOTE
    assert root(merely) is None
    asked = live("Windows", (GTX_1080,), torch=torch, symptoms=[symptom("triton-missing")])
    finding = found("PT413", asked)
    assert finding.severity is Severity.SLOW
    reads_well(finding)
    assert root(asked) == "triton-unsupported-card"
    assert found("PT413", pasted(torch=Torch(available=True, devices=["Tesla P40"]))).severity is Severity.NOTE


def test_a_card_newer_than_the_installed_triton():
    finding = found("PT413", live(cards=(RTX_5090,), torch=working(triton="3.2.0")))
    assert finding.evidence["minimum"] == "3.3"
    assert found("PT413", live(cards=(RTX_5090,))) is None
    assert found("PT413", live(cards=(GTX_1080, RTX_4090))) is None


# -- PT410 rocm-igpu -------------------------------------------------------------------------------------------------------

CARD = Gpu(index=1, name="AMD Radeon RX 7900 XT", vendor="amd", capability="gfx1100")
GRAPHICS = Gpu(index=0, name="AMD Radeon(TM) Graphics", vendor="amd", capability="gfx1036")


def rocm(**changes):
    return working(version="2.10.0+rocm7.1", cuda="none", hip="7.1", arch_list=["gfx1100"], **changes)


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_the_integrated_one_breaks_the_card(system):
    facts = live(system, (GRAPHICS, CARD), torch=rocm(kernel="HIP error: device kernel image is invalid"))
    finding = found("PT410", facts)
    assert finding.certain
    assert ("set" if system == "Windows" else "export") + " HIP_VISIBLE_DEVICES=1" in commands(finding)
    reads_well(finding)
    assert root(facts) == "rocm-igpu"


def test_the_integrated_one_is_taken_and_slow():
    devices = ["AMD Radeon Graphics", "AMD Radeon RX 7900 XT"]
    assert found("PT410", live(cards=(GRAPHICS, CARD), torch=rocm(devices=devices))).severity is Severity.SLOW


def test_a_pasted_hip_error():
    torch = Torch(version="2.2.0", hip="6.0.32830", available=True, devices=["AMD Radeon RX 6700 XT"])
    facts = pasted(symptom("hip-error", text="shared object initialization failed"), torch=torch)
    assert found("PT410", facts).certain is False
    assert root(facts) == "rocm-igpu"
    assert root(pasted(symptom("integrated-gpu-chosen"), symptom("hip-error", text="x"), torch=torch)) == "rocm-igpu"


def test_the_card_first_or_a_mask_is_healthy():
    assert found("PT410", live(cards=(CARD, GRAPHICS), torch=rocm(devices=[CARD.name, GRAPHICS.name]))) is None
    masked = Application(environment={"HIP_VISIBLE_DEVICES": "1"})
    broken = rocm(kernel="HIP error: device kernel image is invalid")
    assert found("PT410", live(cards=(GRAPHICS, CARD), torch=broken, application=masked)) is None


# -- PT411 torch-not-installed, PT412 torch-import-broken ------------------------------------------------------------------


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_no_torch(system):
    facts = live(system, torch=Torch(status="not-installed"))
    finding = found("PT411", facts)
    assert "install torch torchvision --index-url" in commands(finding)
    assert "uninstall" not in commands(finding)
    reads_well(finding)
    assert root(facts) == "torch-not-installed"


def test_no_torch_in_a_paste_and_without_a_card():
    assert root(pasted(torch=Torch(status="not-installed"))) == "torch-not-installed"
    alone = found("PT411", without_gpu(torch=Torch(status="not-installed")))
    assert "--index-url" not in commands(alone)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        ("import-failed", "AttributeError: partially initialized module 'torch' has no attribute 'nn'", "shadowed-by-file"),
        ("import-failed", "ImportError: /lib/libc.so.6: version `GLIBC_2.27' not found", "old-system"),
        ("crashed", "SIGILL", "old-processor"),
        ("import-failed", "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0", "old-numpy"),
        ("import-failed", "[WinError 1455] The paging file is too small", "no-memory"),
        ("import-failed", "ImportError: undefined symbol: iJIT_NotifyEvent", "mixed-releases"),
        ("timeout", "", "hangs"),
        ("crashed", "SIGSEGV", "unknown"),
    ],
)
def test_imports_that_die_or_hang(status, error, kind):
    for facts in (live(torch=Torch(status=status, error=error)), live("Windows", torch=Torch(status=status, error=error))):
        finding = found("PT412", facts)
        assert finding.evidence["kind"] == kind
        reads_well(finding)
    assert found("PT412", pasted(torch=Torch(status=status, error=error))) is not None


def test_an_import_whose_cause_is_known_is_explained_away():
    facts = live("Windows", torch=Torch(status="import-failed", error=FBGEMM))
    assert "torch-import-broken" not in [finding.name for finding in judge(facts, registry.all_rules()).findings]


# -- PT414 wrong-vendor-build ----------------------------------------------------------------------------------------------


def test_a_cuda_build_beside_a_radeon():
    radeon = PciDevice(vendor="amd", name="Radeon RX 7900 XT", kind="discrete")
    torch = working(available=False, kernel=Missing("no-gpu"))
    facts = Facts(system=System(name="Linux"), hardware=Hardware(pci=[radeon]), driver=Driver(gpus=[]), torch=torch)
    finding = found("PT414", facts)
    assert finding.evidence["gpu"] == "Radeon RX 7900 XT"
    reads_well(finding)
    assert root(facts) == "wrong-vendor-build"


def test_a_rocm_build_beside_an_nvidia_card():
    facts = live("Windows", torch=rocm(available=False, kernel=Missing("no-gpu")))
    assert "whl/cu1" in commands(found("PT414", facts))


def test_integrated_graphics_want_no_build_of_their_own():
    graphics = PciDevice(vendor="amd", name="Radeon Graphics", kind="integrated")
    torch = working(available=False, kernel=Missing("no-gpu"))
    assert found("PT414", Facts(hardware=Hardware(pci=[graphics]), torch=torch)) is None
    assert found("PT414", pasted(symptom("cuda-not-available"), torch=torch)) is None
