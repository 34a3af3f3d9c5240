"""The rules of the CUDA layer: on a live machine, on a paste, and silent on what is healthy."""

from __future__ import annotations

import pytest

from flatout.doctor import page, registry
from flatout.doctor.model import Severity
from flatout.doctor.root_cause import judge
from flatout.machine.machine_facts import (
    Application,
    Cuda,
    Driver,
    Facts,
    Gpu,
    Hardware,
    Interpreter,
    Library,
    PciDevice,
    Symptom,
    System,
    Torch,
)

LIBRARIES = "/opt/venv/lib/python3.12/site-packages/nvidia/cudnn/lib"


def gpu(name="NVIDIA GeForce RTX 3090", capability="8.6"):
    return Gpu(index=0, name=name, capability=capability)


def live(system="Linux", card=None, version="580.65.06", torch=None, cuda=None, environment=None, **more):
    """A machine as the probes describe it: healthy where nothing else is said."""
    card = card or gpu()
    windows = system == "Windows"
    return Facts(
        system=System(
            name=system, distribution="Ubuntu 24.04 LTS" if not windows else "Windows 11", wsl=False, container="none"
        ),
        python=Interpreter(path=r"C:\my env\python.exe" if windows else "/opt/venv/bin/python", version="3.12.3", bits=64),
        hardware=Hardware(pci=[PciDevice(vendor="nvidia", name=card.name, kind="discrete")]),
        driver=Driver(version=version, gpus=[card], nvml_error="none", smi="ok"),
        cuda=cuda or Cuda(init_code=0, device_count=1, loaded=[], shadowing=[], missing_libraries=[]),
        torch=torch
        or Torch(status="ok", version="2.9.1+cu128", cuda="12.8", hip="none", available=True, kernel="ok", installer="pip"),
        application=Application(environment=environment or {}),
        **more,
    )


def pasted(*symptoms, **parts):
    return Facts(source="pasted", symptoms=list(symptoms), **parts)


def symptom(code, /, **params):
    return Symptom(code=code, params=params)


def dead_torch(version="2.9.1+cu128", cuda="12.8", **more):
    return Torch(status="ok", version=version, cuda=cuda, hip="none", available=False, installer="pip", **more)


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


@pytest.mark.parametrize("system", ["Linux", "Windows"])
@pytest.mark.parametrize("code", ["CU301", "CU302", "CU303", "CU304", "CU305"])
def test_a_healthy_machine_gets_nothing(code, system):
    assert found(code, live(system)) is None


@pytest.mark.parametrize("code", ["CU301", "CU302", "CU303", "CU304", "CU305"])
def test_pages_have_the_same_keys_in_both_languages(code):
    english, chinese = page.read(code, "en"), page.read(code, "zh")
    assert english.fix.keys() == chinese.fix.keys()
    for language, words in (("en", english), ("zh", chinese)):
        headings = [line.removeprefix("## ") for line in words.body.splitlines() if line.startswith("## ")]
        assert tuple(headings) == page.HEADINGS[language]


@pytest.mark.parametrize("code", ["CU301", "CU302", "CU303", "CU304", "CU305"])
def test_nothing_known_says_nothing(code):
    assert found(code, Facts()) is None
    assert found(code, pasted()) is None


# -- CU301 driver-too-old ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_a_driver_older_than_the_wheels_cuda(system):
    facts = live(system, version="470.86", torch=dead_torch(), cuda=Cuda(init_code=0))
    finding = found("CU301", facts)
    assert finding.certain
    assert finding.evidence["minimum"] == ("525.60.13" if system == "Linux" else "527.41")
    assert "--index-url https://download.pytorch.org/whl/cu118" in commands(finding)  # what this driver runs
    assert '"torch==2.7.*"' in commands(finding)
    reads_well(finding)
    assert root(facts) == "driver-too-old"


def test_torch_says_it_itself():
    facts = pasted(symptom("driver-too-old", found="11.4"), driver=Driver(version="470.86"))
    finding = found("CU301", facts)
    assert finding.certain
    reads_well(finding)
    assert root(facts) == "driver-too-old"
    alone = found("CU301", pasted(symptom("driver-too-old", found="11.6")))
    assert alone.certain
    assert "cu118" in commands(alone)  # a driver with CUDA 11.6 runs any CUDA 11


@pytest.mark.parametrize(
    ("version", "torch", "cuda"),
    [("410.104", "1.5.0", "10.2"), ("410.78", "1.4.0", None), ("435.21", "1.7.1", None)],
)
def test_before_cuda_11_each_release_wanted_its_own_driver(version, torch, cuda):
    built = Torch(version=torch, cuda=cuda) if cuda else Torch(version=torch)
    facts = pasted(symptom("cuda-not-available"), driver=Driver(version=version), torch=built)
    assert found("CU301", facts) is not None
    assert root(facts) == "driver-too-old"


def test_only_the_cuda_number_of_the_driver_is_known():
    torch = Torch(version="2.5.1+cu124", cuda="12.4", available=False)
    assert found("CU301", pasted(driver=Driver(cuda="11.4"), torch=torch)) is not None
    assert found("CU301", pasted(driver=Driver(cuda="12.2"), torch=torch)) is None  # same family: minor versions are compatible


def test_any_driver_of_the_family_runs_any_wheel_of_it():
    assert found("CU301", live(version="525.60.13", torch=dead_torch())) is None


def test_an_old_driver_that_works_by_forward_compatibility_is_healthy():
    torch = Torch(status="ok", version="2.9.1+cu130", cuda="13.0", available=True, kernel="ok")
    assert found("CU301", live(version="535.98", torch=torch)) is None
    elsewhere = pasted(symptom("low-utilisation"), driver=Driver(version="535.98"), torch=Torch(cuda="13.0", available=True))
    assert found("CU301", elsewhere) is None


def test_the_last_driver_of_an_old_card_cannot_be_updated():
    facts = live(card=gpu("Tesla K80", "3.7"), version="470.256.02", torch=dead_torch("2.5.1+cu121", "12.1"))
    finding = found("CU301", facts)
    assert any(step.text == "card-ends" for step in finding.fix)
    assert '"torch==2.6.*"' in commands(finding)


def test_a_new_card_wants_a_driver_that_knows_it():
    facts = live("Windows", gpu("NVIDIA GeForce RTX 5090", "12.0"), "566.36", dead_torch())
    finding = found("CU301", facts)
    assert not finding.certain
    assert finding.evidence["minimum"] == "570"


def test_ptx_of_a_newer_toolkit():
    torch = dead_torch("2.9.1+cu128", "12.8", error_code=222)
    assert found(
        "CU301", live(version="550.54.14", torch=torch)
    ).certain  # the family fits, the compiler in the driver does not
    assert found("CU301", live(version="580.65.06", torch=torch)) is None
    finding = found("CU301", pasted(symptom("cuda-error", code=222), torch=Torch(version="2.9.1+cu128", cuda="12.8")))
    assert finding.evidence["minimum"] == "570.26"


def test_in_a_container_the_driver_is_the_hosts():
    facts = live(version="470.86", torch=dead_torch())
    facts.system.container = "docker"
    assert any(step.text == "driver-host" for step in found("CU301", facts).fix)


# -- CU302 forward-compat ------------------------------------------------------------------------------------------------


def test_804_is_forward_compatibility_whatever_the_driver():
    facts = pasted(symptom("cuda-error", code=804), torch=Torch(cuda="12.4"), system=System(container="docker"))
    finding = found("CU302", facts)
    assert finding.certain
    reads_well(finding)
    assert root(facts) == "forward-compat"


def test_804_on_a_live_machine_explains_the_old_driver_away():
    facts = live(version="470.86", torch=dead_torch("2.5.1+cu124", "12.4"), cuda=Cuda(init_code=804))
    facts.system.container = "docker"
    finding = found("CU302", facts)
    assert "cu118" in commands(finding)
    assert root(facts) == "forward-compat"


def test_803_only_with_a_compatibility_library_or_in_a_container():
    code = symptom("cuda-error", code=803)
    library = Library(name="cuda", path="/usr/local/cuda-12.4/compat/libcuda.so.1")
    assert found("CU302", pasted(code, cuda=Cuda(loaded=[library]))).certain
    assert found("CU302", pasted(code, system=System(container="docker"))).certain is False
    assert found("CU302", pasted(code)) is None  # a plain machine: library and module of two releases
    half_updated = pasted(code, symptom("nvml-version-mismatch"), system=System(container="docker"))
    assert found("CU302", half_updated) is None


def test_compat_on_windows_still_has_a_step():
    finding = found("CU302", live("Windows", torch=dead_torch(error_code=804), cuda=Cuda()))
    assert finding.fix
    reads_well(finding)


# -- CU303 library-shadowing -----------------------------------------------------------------------------------------------


def cudnn(path, version=None):
    return Library(name="cudnn", path=path, version=version) if version else Library(name="cudnn", path=path)


def test_two_cudnns_in_one_process():
    loaded = [cudnn(f"{LIBRARIES}/libcudnn.so.9"), cudnn("/lib/x86_64-linux-gnu/libcudnn_engines_tensor_ir.so.9")]
    for facts in (live(cuda=Cuda(init_code=0, loaded=loaded)), pasted(cuda=Cuda(loaded=loaded))):
        finding = found("CU303", facts)
        assert finding.certain
        assert "unset LD_LIBRARY_PATH" in commands(finding)
        reads_well(finding)
        assert root(facts) == "library-shadowing"


def test_the_same_release_twice_is_harmless():
    loaded = [cudnn(f"{LIBRARIES}/libcudnn.so.9", "9.10.2"), cudnn("/usr/lib/libcudnn.so.9", "9.10.2")]
    assert found("CU303", live(cuda=Cuda(loaded=loaded))) is None


def test_cudnn_refuses():
    facts = pasted(
        symptom("cudnn-version-mismatch", compiled="8.3.2", found="8.0.3"),
        application=Application(environment={"LD_LIBRARY_PATH": "/public/apps/cudnn/v8.0.3.33/lib64:/public/slurm/lib"}),
    )
    finding = found("CU303", facts)
    assert finding.certain
    assert finding.evidence["found"] == "8.0.3"
    assert finding.evidence["search_path"] == "/public/apps/cudnn/v8.0.3.33/lib64"
    reads_well(finding)


def test_a_toolkit_in_the_search_path_is_harmless_until_something_fails():
    path = {"LD_LIBRARY_PATH": "/usr/local/cuda-11.4/lib64"}
    before = Cuda(init_code=0, shadowing=[Library(name="cublas", path="/usr/local/cuda-11.4/lib64/libcublas.so.11")])
    assert found("CU303", live(environment=path, cuda=before)) is None
    broken = Torch(status="import-failed", error="undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12")
    assert found("CU303", live(environment=path, cuda=before, torch=broken)).certain
    assert found("CU303", live(environment=path, torch=broken)).certain is False
    assert found("CU303", live(torch=broken)) is None


def test_stubs_for_the_linker_are_harmless():
    broken = Torch(status="import-failed", error="undefined symbol: x")
    assert found("CU303", live(environment={"LIBRARY_PATH": "/usr/local/cuda/lib64/stubs"}, torch=broken)) is None


def test_a_symbol_that_the_other_release_does_not_have():
    finding = found("CU303", pasted(symptom("undefined-symbol", library="libcusparse.so.12")))
    assert finding.certain is False
    reads_well(finding)
    assert found("CU303", pasted(symptom("undefined-symbol", library="flash_attn_2_cuda.so"))) is None


def test_shadowing_on_windows():
    finding = found("CU303", live("Windows", symptoms=[symptom("cudnn-version-mismatch")]))
    assert "where cudnn64_9.dll" in commands(finding)
    reads_well(finding)


# -- CU304 cuda-libraries-missing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["libcudnn.so.9", "libcublas.so.12", "libnccl.so.2", "libnvrtc.so.12"])
def test_a_library_that_torch_cannot_load(name):
    torch = Torch(status="import-failed", version="2.9.1+cu128", cuda="12.8", error=f"{name}: cannot open shared object file")
    facts = live(torch=torch, cuda=Cuda(missing_libraries=[name]))
    finding = found("CU304", facts)
    assert finding.evidence["libraries"] == [name]
    assert '"torch==2.9.1"' in commands(finding)
    assert "whl/cu128" in commands(finding)
    reads_well(finding)
    assert root(facts) == "cuda-libraries-missing"


def test_a_pasted_loader_message():
    facts = pasted(symptom("shared-library-not-found", library="libcudnn.so.8"))
    reads_well(found("CU304", facts))
    assert root(facts) == "cuda-libraries-missing"


def test_the_drivers_own_library_is_not_ours():
    assert found("CU304", pasted(symptom("shared-library-not-found", library="libcuda.so.1"))) is None


def test_a_cuda_dll_on_windows():
    facts = live("Windows", torch=dead_torch(), symptoms=[symptom("dll-not-found", library="cudnn64_9.dll")])
    finding = found("CU304", facts)
    assert '"C:\\my env\\python.exe" -m pip' in commands(finding)
    assert root(facts) == "cuda-libraries-missing"
    assert found("CU304", live("Windows", cuda=Cuda(missing_libraries=["nccl"]))) is None  # there is none on Windows


def test_an_extension_for_another_cuda():
    torch = Torch(version="2.9.1+cu128", cuda="12.8", available=True)
    finding = found("CU304", pasted(symptom("shared-library-not-found", library="libcudart.so.11.0"), torch=torch))
    assert finding.fix[0].text == "other-cuda"
    reads_well(finding)


# -- CU305 cuda-start-failed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_a_code_that_nothing_explains(system):
    finding = found("CU305", live(system, torch=dead_torch(error_code=36), cuda=Cuda(init_code=0)))
    assert finding.certain is False
    assert finding.severity is Severity.FAULT
    assert finding.evidence["error"] == "cudaErrorCallRequiresNewerDriver"
    assert "nvidia-smi" in commands(finding)
    reads_well(finding)


def test_old_numbers_are_named_by_their_new_ones():
    assert found("CU305", pasted(symptom("cuda-error", code=30))).evidence["error_code"] == 999


def test_without_a_code_it_is_still_a_fault():
    facts = pasted(symptom("cuda-not-available"), torch=Torch(version="2.9.1+cu128", cuda="12.8", available=False))
    assert found("CU305", facts).severity is Severity.FAULT
    assert root(facts) is not None


def test_errors_of_a_running_program_are_not_the_start():
    for code in (700, 710, 719, 209):
        assert found("CU305", pasted(symptom("cuda-error", code=code))) is None


def test_no_card_nothing_to_start():
    torch = dead_torch("2.9.1", "12.8", error_code=100)
    facts = Facts(system=System(name="Linux"), hardware=Hardware(pci=[]), driver=Driver(gpus=[]), torch=torch)
    assert found("CU305", facts) is None


@pytest.mark.parametrize(
    "facts",
    [
        live(version="470.86", torch=dead_torch(error_code=35), cuda=Cuda()),
        live(torch=Torch(status="ok", version="2.9.1+cpu", cuda="none", available=False), cuda=Cuda()),
        live(torch=dead_torch(error_code=804), cuda=Cuda(init_code=804)),
        live(card=gpu("NVIDIA GeForce RTX 5090", "12.0"), torch=dead_torch("2.5.1+cu121", "12.1", error_code=209)),
    ],
)
def test_whoever_knows_more_explains_it_away(facts):
    names = [finding.name for finding in judge(facts, registry.all_rules()).findings]
    assert names
    assert "cuda-start-failed" not in names
