"""What tests of rules share: machines in a few words, one rule's answer, and the proof that a finding can be shown."""

from __future__ import annotations

from flatout.doctor import page, registry, root_cause
from flatout.doctor.model import Finding, Layer
from flatout.machine.machine_facts import Cuda, Driver, Facts, Gpu, Hardware, PciDevice, Symptom, System, Torch

RULES = tuple(rule for rule in registry.all_rules() if rule.layer in (Layer.HARDWARE, Layer.DRIVER))

CARD = PciDevice(vendor="nvidia", name="NVIDIA GeForce RTX 4090", kind="discrete", kernel_driver="nvidia")
INTEL = PciDevice(vendor="intel", name="Intel UHD Graphics", kind="integrated", kernel_driver="i915")

UBUNTU = System(name="Linux", distribution="Ubuntu 24.04.3 LTS", release="6.8.0-60-generic", wsl=False, container="none")
WINDOWS = System(name="Windows", release="11", wsl=False, container="none")
DOCKER = System(name="Linux", distribution="Ubuntu 22.04.4 LTS", wsl=False, container="docker")
WSL = System(name="Linux", distribution="Ubuntu 22.04.4 LTS", wsl=True, container="none")

NODES = ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"]
MODULES = ["nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"]


def gpu(**known) -> Gpu:
    return Gpu(**{"index": 0, "name": "NVIDIA GeForce RTX 4090", "capability": "8.9", **known})


def working(card: Gpu | None = None, **driver) -> dict:
    """The layers of a machine whose driver and torch are fine."""
    values = {"version": "580.95.05", "kernel_version": "580.95.05", "nvml_error": "none", "smi": "ok", "modules": MODULES}
    return {
        "system": UBUNTU,
        "hardware": Hardware(pci=[CARD], laptop=False),
        "driver": Driver(**{**values, "device_nodes": NODES, "module_installed": True, "gpus": [card or gpu()], **driver}),
        "cuda": Cuda(init_code=0, device_count=1),
        "torch": Torch(status="ok", version="2.9.0+cu128", cuda="12.8", hip="none", available=True, device_count=1),
    }


def broken(**changes) -> dict:
    """The same, where CUDA does not start: what the driver says is for the test to add."""
    return {
        **working(),
        "driver": Driver(),
        "cuda": Cuda(init_code=100, device_count=0),
        "torch": Torch(status="ok", version="2.9.0+cu128", cuda="12.8", hip="none", available=False),
        **changes,
    }


def probed(layers: dict | None = None, **more) -> Facts:
    return Facts(source="probed", **{**(layers or {}), **more})


def pasted(*symptoms: str | Symptom, **layers) -> Facts:
    codes = [Symptom(code=one) if isinstance(one, str) else one for one in symptoms]
    return Facts(source="pasted", symptoms=codes, **layers)


def seen(code: str, /, **params) -> Symptom:
    return Symptom(code=code, params=params)


def find(code: str, facts: Facts) -> Finding | None:
    return next(rule for rule in RULES if rule.code == code).check(facts)


def names(facts: Facts) -> list[str]:
    """What these layers' rules show of the facts, the root cause first; a note is none."""
    judged = root_cause.judge(facts, RULES)
    assert judged.crashed == []
    return [] if judged.root_cause is None else [finding.name for finding in judged.findings]


def proven(finding: Finding | None) -> Finding:
    """It has evidence, a step that can be taken, and sentences in both languages that lack no value."""
    assert finding is not None
    assert finding.evidence
    assert finding.fix
    for language in ("en", "zh"):
        words = page.read(finding.code, language)
        assert words.sentence(dict(finding.evidence)) != words.title
        for step in finding.fix:
            assert (step.command is None) != (step.text is None)
            if step.text is not None:
                assert words.fix[step.text].format(**step.params)
    return finding


def commands(finding: Finding | None) -> str:
    return "\n".join(step.command for step in proven(finding).fix if step.command)


def texts(finding: Finding | None) -> list[str]:
    return [step.text for step in proven(finding).fix if step.text]
