"""The rules of the layer application: found from a live machine and from a paste, silent on healthy near misses."""

from __future__ import annotations

import pytest

from flatout.base.records import Missing
from flatout.doctor import page, registry, root_cause
from flatout.doctor.model import Finding, Layer, Severity
from flatout.machine.machine_facts import (
    Application,
    Cuda,
    Driver,
    Facts,
    Gpu,
    GpuProcess,
    Hardware,
    Interpreter,
    PciDevice,
    Processor,
    ScriptLook,
    Symptom,
    System,
    Torch,
)

GIB = 1 << 30
ONE = "GPU-aaaaaaaa-1111-2222-3333-444444444444"
TWO = "GPU-bbbbbbbb-1111-2222-3333-444444444444"


def card(index=0, name="NVIDIA GeForce RTX 4090", uuid=ONE, total=24 * GIB, free=23 * GIB, **more) -> Gpu:
    return Gpu(index=index, name=name, uuid=uuid, memory_total_bytes=total, memory_free_bytes=free, capability="8.9", **more)


PAIR = [card(), card(1, uuid=TWO)]


def live(gpus=None, environment=None, system="Linux", works=True, script=None, container="none", wsl=False, **more) -> Facts:
    """A probed machine on which everything below the program is in order."""
    gpus = [card()] if gpus is None else gpus
    symptoms = [Symptom(code=code, params=params) for code, params in more.pop("symptoms", ())]
    return Facts(
        source="probed",
        system=System(name=system, container=container, wsl=wsl),
        processor=Processor(cores=more.pop("cores", 16), usable=more.pop("usable", 16.0)),
        python=Interpreter(version=more.pop("python", "3.12.3"), path="/home/u/.venv/bin/python"),
        hardware=Hardware(pci=more.pop("pci", [PciDevice(vendor="nvidia", kind="discrete")])),
        driver=Driver(version=more.pop("driver", "570.86.15"), nvml_error="none", smi="ok", gpus=gpus),
        cuda=Cuda(init_code=0 if works else 100, device_count=len(gpus) if works else 0),
        torch=Torch(
            status="ok", version="2.7.0+cu128", cuda="12.8", hip="none", available=works, device_count=len(gpus) if works else 0
        ),
        application=Application(environment=environment or {}, script=script or ScriptLook(), **more),
        symptoms=symptoms,
    )


def paste(*symptoms, **parts) -> Facts:
    """What somebody else's message says, and nothing more."""
    found = [Symptom(code=item) if isinstance(item, str) else Symptom(code=item[0], params=item[1]) for item in symptoms]
    return Facts(source="pasted", symptoms=found, **parts)


def with_env(**environment) -> Application:
    return Application(environment=environment)


def oom(tried, allocated, reserved, free, total=24.0):
    names = ("tried", "allocated", "reserved", "free", "total")
    values = (tried, allocated, reserved, free, total)
    return ("out-of-memory", {f"{name}_bytes": int(value * GIB) for name, value in zip(names, values, strict=True)})


WINDOWS = System(name="Windows", wsl=False)
AMD = [
    Gpu(index=0, name="AMD Radeon RX 7900 XT", vendor="amd"),
    Gpu(index=1, name="AMD Radeon Graphics", vendor="amd"),
]

# rule -> facts that must give it, of a live machine first
FOUND = {
    "visible-devices": [
        live(environment={"CUDA_VISIBLE_DEVICES": ""}, works=False),
        live(environment={"CUDA_VISIBLE_DEVICES": "-1"}, works=False, system="Windows"),
        live(environment={"CUDA_VISIBLE_DEVICES": "3"}, works=False),
        live(PAIR, environment={"CUDA_VISIBLE_DEVICES": "2,0"}, works=False),
        live(PAIR, environment={"CUDA_VISIBLE_DEVICES": "0,0"}, works=False),
        live(environment={"CUDA_VISIBLE_DEVICES": "GPU-ffffffff"}, works=False),
        live(PAIR, environment={"CUDA_VISIBLE_DEVICES": "0,9,1"}),
        live(environment={"CUDA_VISIBLE_DEVICES": '"0"'}, works=False, system="Windows"),
        live(script=ScriptLook(sets_visible_devices_late=True, lines={"sets_visible_devices_late": 9, "cuda_started": 4})),
        paste("visible-devices-ignored"),
        paste("cuda-not-available", application=with_env(CUDA_VISIBLE_DEVICES="-1")),
        paste(("cuda-error", {"code": 100}), application=with_env(CUDA_VISIBLE_DEVICES="")),
        paste("cuda-not-available", application=with_env(ROCR_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES="1")),
        Facts(
            driver=Driver(gpus=AMD),
            torch=Torch(hip="6.2", cuda="none", available=True),  # the processor's own graphics answers
            application=with_env(HIP_VISIBLE_DEVICES="1"),
        ),
    ],
    "wrong-device-index": [
        live(symptoms=[("invalid-device-ordinal", {"ordinal": 7})]),
        live(script=ScriptLook(device_strings=["cuda:1"], lines={"device_strings": 12})),
        paste("invalid-device-ordinal"),
        paste(("cuda-error", {"code": 101})),
        paste(("invalid-device-ordinal", {"ordinal": 2}), application=with_env(CUDA_VISIBLE_DEVICES="2,3")),
    ],
    "device-mismatch": [
        live(symptoms=[("device-mismatch", {"first": "cuda:0", "second": "cpu"})]),
        paste(("device-mismatch", {"first": "cuda:0", "second": "cuda:1"})),
    ],
    "dataloader-bottleneck": [
        live(symptoms=[("low-utilisation", {"percent": 20})], usable=1.0),
        paste("workers-zero", "loader-waits"),
        paste("loader-waits"),
        paste(("low-utilisation", {"percent": 20}), "workers-zero"),
        paste("low-utilisation"),
    ],
    "kernel-fault": [paste(("cuda-error", {"code": 710})), paste(("cuda-error", {"code": 700}))],
    "spawn-main-guard": [
        live(system="Windows", script=ScriptLook(main_guard=False, workers=4, lines={"main_guard": 30})),
        live(python="3.14.0", script=ScriptLook(main_guard=False, workers=2)),
        live(script=ScriptLook(main_guard=False, workers=2, start_method="spawn")),
        paste("spawn-bootstrapping"),
    ],
    "shared-memory": [
        live(container="docker", shm_bytes=64 << 20, shm_free_bytes=60 << 20, script=ScriptLook(workers=4)),
        live(container="docker", shm_bytes=64 << 20, symptoms=[("bus-error-in-worker", {})]),
        paste("bus-error-in-worker"),
        paste("shared-memory-exhausted", "pin-memory-thread-exited"),
    ],
    "pin-memory-thread": [
        live(system="Windows", symptoms=[("pin-memory-thread-exited", {})]),
        paste("pin-memory-thread-exited"),
    ],
    "oom-fragmentation": [
        live(symptoms=[oom(1, 12, 21, 0.5)]),
        paste(oom(1, 12, 9, 0.5)),  # a newer message: 9 GiB reserved but unallocated
        paste("out-of-memory", "memory-fragmented"),
        paste(oom(1, 12, 21, 0.5), application=with_env(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")),  # torch's advice
    ],
    "memory-held-by-other": [
        live([card(free=5 * GIB, processes=[])]),
        live(symptoms=[oom(2, 5, 5.5, 0.5)]),
        paste("memory-not-released"),
        paste("out-of-memory", "memory-not-released"),
        paste(oom(2, 5, 5.5, 0.5)),
    ],
    "sysmem-fallback": [
        live([card(free=GIB // 8, utilisation=100, driver_model="WDDM")], system="Windows"),
        live([card(free=GIB // 8, utilisation=100)], wsl=True),
        paste("memory-spill"),
        paste("slow-after-update", system=WINDOWS),
        paste("memory-spill", system=System(name="Linux", wsl=True)),
    ],
    "out-of-memory": [
        live(symptoms=[oom(2, 22, 22.3, 0.3)]),
        paste(oom(2, 22, 22.3, 0.3)),
        paste(oom(2, 22, 22.3, 0.3), "memory-fragmented"),  # the word is in every message; the figures say otherwise
        paste("out-of-memory"),
    ],
    "memory-leak": [
        live(symptoms=[("memory-grows", {}), oom(0.1, 22, 22.3, 0.3)]),
        paste("memory-grows"),
    ],
    "exploding-loss": [live(symptoms=[("loss-explodes", {})]), paste("loss-explodes")],
    "slow-storage": [
        live(symptoms=[("slow-storage", {})], script=ScriptLook(workers=8)),
        paste("slow-storage", "loader-waits"),
    ],
    "performance-falling": [live(symptoms=[("slower-over-time", {})]), paste("slower-over-time")],
    "low-utilisation": [
        live(symptoms=[("low-utilisation", {"percent": 25})], script=ScriptLook(workers=8)),
        paste(("low-utilisation", {"percent": 0})),
    ],
}

# Notes are shown, and the machine stays healthy.
NOTED = {
    "dataloader-bottleneck": [
        live(script=ScriptLook(workers=0, lines={"workers": 80})),
        live(script=ScriptLook(workers=64), usable=4.0),
    ],
    "visible-devices": [live(environment={"CUDA_VISIBLE_DEVICES": "0,1"})],
    "shared-memory": [live(container="docker", shm_bytes=64 << 20, shm_free_bytes=64 << 20)],
    "memory-held-by-other": [
        live([card(free=2 * GIB, processes=[GpuProcess(pid=4242, name="python", memory_bytes=21 * GIB)])]),
    ],
    "slow-storage": [live(wsl=True, script=ScriptLook(path="/mnt/c/Users/u/train.py"))],
    "low-utilisation": [
        live([card(utilisation=12, processes=[GpuProcess(pid=7, name="python3", memory_bytes=6 * GIB)], free=17 * GIB)]),
    ],
    "full-precision": [live(script=ScriptLook(mixed_precision=False, workers=4))],
    "pageable-batches": [live(script=ScriptLook(pin_memory=False, workers=4))],
    "device-order": [
        live([card(), card(1, name="NVIDIA GeForce GTX 1080 Ti", uuid=TWO)], environment={"CUDA_VISIBLE_DEVICES": "1"}),
    ],
}

DESKTOP = [GpuProcess(pid=1, name="Xorg", memory_bytes=300 << 20), GpuProcess(pid=2, name="firefox", memory_bytes=500 << 20)]

HEALTHY = [
    live(),
    live(environment={"CUDA_VISIBLE_DEVICES": "0"}),
    live(PAIR, environment={"CUDA_VISIBLE_DEVICES": "1,0"}),
    live(environment={"CUDA_VISIBLE_DEVICES": ONE}),
    live(PAIR, environment={"CUDA_VISIBLE_DEVICES": "GPU-b"}),
    live([card(mig_enabled=True, mig_devices=["MIG-1234-5678"])], environment={"CUDA_VISIBLE_DEVICES": "MIG-1234-5678"}),
    live([card(uuid=Missing("unknown"))], environment={"CUDA_VISIBLE_DEVICES": "GPU-cccc"}),
    live([card(processes=DESKTOP, free=23 * GIB)]),
    live([card(free=23 * GIB, processes=[])]),
    live([card(free=5 * GIB, processes=[])], container="docker", shm_bytes=8 * GIB, shm_free_bytes=8 * GIB),
    live([card(free=5 * GIB, processes=[])], wsl=True),
    live(script=ScriptLook(workers=4, pin_memory=True, mixed_precision=True, main_guard=True, device_strings=["cuda", "cpu"])),
    live(system="Windows", script=ScriptLook(main_guard=True, workers=4)),
    live(script=ScriptLook(main_guard=False, workers=4)),
    live(script=ScriptLook(sets_visible_devices_late=True, lines={"sets_visible_devices_late": 3})),
    live(script=ScriptLook(device_strings=["cuda:0"])),
    live(container="docker", shm_bytes=8 * GIB, shm_free_bytes=8 * GIB, script=ScriptLook(workers=8)),
    live([card(free=GIB // 8, utilisation=0)], system="Windows"),
    live([card(name="NVIDIA GeForce GTX 1650")], script=ScriptLook(mixed_precision=False)),
    Facts(source="probed", application=with_env(CUDA_VISIBLE_DEVICES="")),  # no card, nothing hidden
    Facts(
        source="probed", driver=Driver(gpus=[]), application=Application(script=ScriptLook(workers=0, mixed_precision=False))
    ),
    live([card(free=3 * GIB, processes=[], mig_enabled=True, mig_devices=["MIG-1"])]),
    paste(("healthy-remark", {"what": "task-manager"}), ("low-utilisation", {"percent": 0})),
    paste(application=with_env(CUDA_VISIBLE_DEVICES="0")),
    paste(("low-utilisation", {"percent": 92})),
    Facts(driver=Driver(gpus=AMD), torch=Torch(hip="6.2", available=True), application=with_env(HIP_VISIBLE_DEVICES="0")),
]

RULES = tuple(rule for rule in registry.all_rules() if rule.layer is Layer.APPLICATION)


def cases(table):
    return [
        pytest.param(name, facts, id=f"{name}-{number}") for name, many in table.items() for number, facts in enumerate(many)
    ]


def check(name: str, facts: Facts) -> Finding | None:
    rule = registry.find(name)
    assert rule is not None
    return rule.check(facts)


@pytest.mark.parametrize(("name", "facts"), cases(FOUND))
def test_found_and_named_as_the_cause(name, facts):
    finding = check(name, facts)
    assert finding is not None
    assert finding.severity is not Severity.NOTE
    judged = root_cause.judge(facts, RULES)
    assert judged.crashed == []
    assert judged.root_cause is not None
    assert judged.root_cause.name == name


@pytest.mark.parametrize(("name", "facts"), cases(NOTED))
def test_a_note_leaves_the_machine_healthy(name, facts):
    finding = check(name, facts)
    assert finding is not None
    assert finding.severity is Severity.NOTE
    judged = root_cause.judge(facts, RULES)
    assert judged.healthy
    assert name in [item.name for item in judged.findings]


@pytest.mark.parametrize("facts", HEALTHY)
def test_healthy_machines_get_nothing(facts):
    judged = root_cause.judge(facts, RULES)
    assert judged.crashed == []
    assert judged.findings == []


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("name", "facts"), [*cases(FOUND), *cases(NOTED)])
def test_every_finding_has_its_words(name, facts, language):
    finding = check(name, facts)
    assert finding is not None
    words = page.read(finding.code, language)
    sentence = words.sentence(finding.evidence)
    assert sentence
    assert "{" not in sentence
    assert finding.fix
    for step in finding.fix:
        if step.text:
            assert "{" not in words.fix[step.text].format(**step.params)
        else:
            assert step.command


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", [*FOUND, "full-precision", "pageable-batches", "device-order"])
def test_the_live_pattern_gives_the_whole_sentence(name, language):
    """Not the title, which stands in where a value is missing."""
    facts = [*FOUND.get(name, ()), *NOTED.get(name, ())][0]
    finding = check(name, facts)
    assert finding is not None
    words = page.read(finding.code, language)
    assert words.says.format(**finding.evidence)


def test_pages_agree_in_both_languages():
    for rule in RULES:
        english, chinese = (page.read(rule.code, language) for language in ("en", "zh"))
        assert english.fix.keys() == chinese.fix.keys(), rule.code
        for language, one in (("en", english), ("zh", chinese)):
            headings = tuple(line[3:] for line in one.body.splitlines() if line.startswith("## "))
            assert headings == page.HEADINGS[language], rule.code


# Only a finished run shows them: tests/doctor/test_rules_measured.py.
MEASURED = {"hidden-synchronisation", "tf32-off", "tiny-kernels", "throttled-run", "host-swapping", "allocator-retries",
            "cpu-contended"}  # fmt: skip


def test_every_rule_is_tried():
    assert {rule.name for rule in RULES} == {*FOUND, *NOTED, *MEASURED}


def test_a_hidden_card_explains_a_wrong_number():
    facts = live(PAIR, environment={"CUDA_VISIBLE_DEVICES": "0,0"}, works=False, symptoms=[("cuda-error", {"code": 101})])
    judged = root_cause.judge(facts, RULES)
    assert [finding.name for finding in judged.findings] == ["visible-devices"]


def test_special_cases_explain_the_plain_one():
    for facts in (live(symptoms=[oom(1, 12, 21, 0.5)]), live(symptoms=[oom(2, 5, 5.5, 0.5)])):
        assert "out-of-memory" not in [finding.name for finding in root_cause.judge(facts, RULES).findings]


def test_expandable_segments_are_not_advised_twice():
    facts = live(symptoms=[oom(1, 12, 21, 0.5)], environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    judged = root_cause.judge(facts, RULES)
    assert judged.root_cause is not None
    assert judged.root_cause.name == "out-of-memory"


def test_repairs_fit_the_system():
    on_windows = check("visible-devices", live(environment={"CUDA_VISIBLE_DEVICES": "-1"}, works=False, system="Windows"))
    on_linux = check("visible-devices", live(environment={"CUDA_VISIBLE_DEVICES": "-1"}, works=False))
    assert on_windows is not None
    assert on_linux is not None
    assert on_windows.fix[0].command == "Remove-Item Env:CUDA_VISIBLE_DEVICES"
    assert on_linux.fix[0].command == "unset CUDA_VISIBLE_DEVICES"
    busy = [card(free=GIB, processes=[GpuProcess(pid=4242, name="python", memory_bytes=20 * GIB)])]
    kill = check("memory-held-by-other", live(busy, symptoms=[("out-of-memory", {})]))
    assert kill is not None
    assert "kill 4242" in [step.command for step in kill.fix]


def test_workers_are_suggested_within_the_machine():
    finding = check("dataloader-bottleneck", live(script=ScriptLook(workers=0), usable=7.0))
    assert finding is not None
    assert finding.fix[0].params == {"count": 4}
    many = check("dataloader-bottleneck", live(script=ScriptLook(workers=0), system="Windows"))
    assert many is not None
    assert many.fix[0].params == {"count": 4}


@pytest.mark.parametrize("code", [700, 710, 715, 716, 719])
def test_a_programs_own_kernel_is_not_the_machines_fault(code):
    facts = paste(("cuda-error", {"code": code}))
    finding = check("kernel-fault", facts)
    assert finding is not None
    assert root_cause.judge(facts, RULES).root_cause == finding
    for language in ("en", "zh"):
        assert str(code) in page.read("AP520", language).sentence(dict(finding.evidence))
    assert check("kernel-fault", paste(("cuda-error", {"code": 999}))) is None
    assert check("kernel-fault", live()) is None
