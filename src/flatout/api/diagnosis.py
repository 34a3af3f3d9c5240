"""`GPUDiagnosticTool`: the doctor as objects. It judges the interpreter that runs it, and never imports torch itself."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from flatout.base.records import Missing
from flatout.base.words import Words, choose_language
from flatout.doctor import page, registry
from flatout.doctor.model import Finding, Layer, Verdict
from flatout.doctor.queries import known
from flatout.doctor.root_cause import judge
from flatout.machine.choose import Choice, choose
from flatout.machine.gather import gather
from flatout.machine.machine_facts import Facts, Gpu


@dataclass
class GPUStatus:
    """One card: bytes, and the compute capability as torch gives it. `Missing` where the driver does not say."""

    device_id: int
    device_name: str
    is_available: bool
    memory_total: int | Missing
    memory_free: int | Missing
    compute_capability: tuple[int, int] | Missing
    is_selected: bool


@dataclass
class Problem:
    """A finding in words: what is wrong, and the steps that repair it."""

    code: str
    name: str
    severity: str
    message: str
    fix: list[str]


@dataclass
class LayerStatus:
    status: str  # ok, warn, fail, blocked, unknown
    problems: list[Problem] = field(default_factory=list)
    blocked_by: str | None = None

    @property
    def ok(self) -> bool:
        return self.status in ("ok", "warn")


@dataclass
class HardwareStatus(LayerStatus):
    gpus: list[GPUStatus] = field(default_factory=list)
    display_devices: list[str] = field(default_factory=list)


@dataclass
class DriverStatus(LayerStatus):
    version: str | None = None
    cuda_version: str | None = None  # the newest CUDA it supports


@dataclass
class CUDAStatus(LayerStatus):
    error_code: int | None = None  # 0: it starts
    device_count: int | None = None
    toolkits: list[str] = field(default_factory=list)


@dataclass
class PyTorchStatus(LayerStatus):
    version: str | None = None
    cuda_build: str | None = None  # None for a build without CUDA
    is_available: bool | None = None
    arch_list: list[str] = field(default_factory=list)


@dataclass
class DeviceSelectionResult:
    device: str  # what torch calls it: "cuda:0", "mps", "cpu"
    device_id: int | None
    device_name: str
    reason: str
    exports: dict[str, str] = field(default_factory=dict)  # environment that makes the program see this card alone
    tested: bool = True


@dataclass
class GPUDiagnosticReport:
    healthy: bool
    root_cause: Problem | None
    problems: list[Problem]
    hardware: HardwareStatus
    driver: DriverStatus
    cuda: CUDAStatus
    pytorch: PyTorchStatus
    application: LayerStatus
    device: DeviceSelectionResult


class GPUDiagnosticTool:
    """Five layers, one root cause. Facts are gathered once, at the first question.

    `python` is the interpreter whose torch is meant (default: this one); `script` a training script or configuration to
    look at; `device_id` the id that a configuration asks for; `language` "en" or "zh" (default: the locale's).
    """

    def __init__(
        self,
        python: str | None = None,
        script: str | os.PathLike[str] | None = None,
        device_id: int | None = None,
        language: str | None = None,
    ) -> None:
        self._python = python or sys.executable
        self._script = Path(script) if script is not None else None
        self._device_id = device_id
        self._words = Words(choose_language(language))

    def check_hardware_detection(self) -> HardwareStatus:
        """The cards that the machine itself and its driver see."""
        pci = known(self._facts.hardware.pci) or []
        return HardwareStatus(
            **self._layer(Layer.HARDWARE),
            gpus=[self._gpu(gpu) for gpu in known(self._facts.driver.gpus) or []],
            display_devices=[known(device.name) or device.vendor for device in pci],
        )

    def check_nvidia_driver(self) -> DriverStatus:
        """The driver, its version and the newest CUDA it can serve."""
        driver = self._facts.driver
        return DriverStatus(**self._layer(Layer.DRIVER), version=known(driver.version), cuda_version=known(driver.cuda))

    def check_cuda_installation(self) -> CUDAStatus:
        """Whether CUDA starts, and the toolkits that lie about."""
        cuda = self._facts.cuda
        return CUDAStatus(
            **self._layer(Layer.CUDA),
            error_code=known(cuda.init_code),
            device_count=known(cuda.device_count),
            toolkits=known(cuda.toolkits) or [],
        )

    def check_pytorch_gpu_support(self) -> PyTorchStatus:
        """What torch was built for, and whether it finds a device."""
        torch = self._facts.torch
        build = known(torch.cuda)
        return PyTorchStatus(
            **self._layer(Layer.PYTORCH),
            version=known(torch.version),
            cuda_build=None if build == "none" else build,
            is_available=known(torch.available),
            arch_list=known(torch.arch_list) or [],
        )

    def diagnose_device_selection(self) -> DeviceSelectionResult:
        """The device that a training would get, and why."""
        choice = self._choice
        return DeviceSelectionResult(
            device=choice.device,
            device_id=choice.index,
            device_name=choice.name,
            reason=self._words(f"choice.{choice.reason}", **choice.params),
            exports=choice.exports,
            tested=choice.tested,
        )

    def generate_gpu_diagnostic_report(self) -> GPUDiagnosticReport:
        """All five layers, the root cause and its repair."""
        root = self._verdict.root_cause
        return GPUDiagnosticReport(
            healthy=self._verdict.healthy,
            root_cause=self._problem(root) if root else None,
            problems=[self._problem(finding) for finding in self._verdict.findings],
            hardware=self.check_hardware_detection(),
            driver=self.check_nvidia_driver(),
            cuda=self.check_cuda_installation(),
            pytorch=self.check_pytorch_gpu_support(),
            application=LayerStatus(**self._layer(Layer.APPLICATION)),
            device=self.diagnose_device_selection(),
        )

    # -- gathered once --------------------------------------------------------------------------------------------

    @cached_property
    def _facts(self) -> Facts:
        facts = gather(self._python)
        if self._script is not None:
            from flatout.machine import script_look  # with its YAML reader, only for those who hand a file over

            look = script_look.look(self._script)
            if not isinstance(look, Missing):
                facts.application.script = look
        return facts

    @cached_property
    def _verdict(self) -> Verdict:
        return judge(self._facts, registry.all_rules())

    @cached_property
    def _choice(self) -> Choice:
        return choose(
            known(self._facts.driver.gpus) or [],
            pci=known(self._facts.hardware.pci) or [],
            environment=self._facts.application.environment,
            configured=self._device_id,
        )

    # -- in words -------------------------------------------------------------------------------------------------

    def _layer(self, layer: Layer) -> dict[str, Any]:
        verdict = self._verdict.layers[layer]
        here = [finding for finding in self._verdict.findings if finding.layer is layer]
        status = "unknown" if verdict.status == "crashed" else verdict.status
        return {"status": status, "problems": [self._problem(finding) for finding in here], "blocked_by": verdict.blocked_by}

    def _problem(self, finding: Finding) -> Problem:
        sheet = page.read(finding.code, self._words.language)
        return Problem(
            code=finding.code,
            name=finding.name,
            severity=str(finding.severity),
            message=sheet.sentence(dict(finding.evidence)),
            fix=[sheet.step(fix) for fix in finding.fix],
        )

    def _gpu(self, gpu: Gpu) -> GPUStatus:
        return GPUStatus(
            device_id=gpu.index,
            device_name=gpu.name,
            is_available=self._facts.torch.available is True,
            memory_total=gpu.memory_total_bytes,
            memory_free=gpu.memory_free_bytes,
            compute_capability=_capability(gpu),
            is_selected=self._choice.index == gpu.index,
        )


def _capability(gpu: Gpu) -> tuple[int, int] | Missing:
    if isinstance(gpu.capability, Missing):
        return gpu.capability
    major, _, minor = gpu.capability.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else Missing("not-reported", gpu.capability)
