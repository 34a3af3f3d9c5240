"""pip, conda and the banners of programs that say which torch they run on."""

from __future__ import annotations

import re

from flatout.base.records import Missing
from flatout.doctor.paste import builds
from flatout.doctor.paste.builds import VERSION
from flatout.doctor.paste.clean import Text
from flatout.doctor.paste.draft import Draft, Rank
from flatout.machine.machine_facts import Extension

# Packages with kernels of their own, compiled for a list of architectures that is not torch's.
EXTENSIONS = [
    "flash-attn",
    "flash_attn",
    "xformers",
    "vllm",
    "bitsandbytes",
    "apex",
    "deepspeed",
    "mmcv",
    "mmcv-full",
    "detectron2",
    "pytorch3d",
    "nvdiffrast",
    "gsplat",
    "sageattention",
    "torch-scatter",
    "torch_scatter",
    "torch-sparse",
    "torch_sparse",
    "torch-cluster",
    "spconv",
    "tiny-cuda-nn",
    "tinycudann",
    "auto-gptq",
    "autoawq",
    "exllamav2",
    "causal-conv1d",
    "mamba-ssm",
    "mamba_ssm",
    "diff-gaussian-rasterization",
    "diff_gaussian_rasterization",
    "onnxruntime-gpu",
    "llama-cpp-python",
    "ctranslate2",
    "cupy",
    "dgl",
    "natten",
    "kaolin",
    "paddlepaddle-gpu",
    "sgl-kernel",
    "sgl_kernel",
    "flashinfer",
]
_LINE = re.compile(
    r"\s*(?:\[(?:pip3?|conda)\]\s*|[-*] )?([A-Za-z][\w.-]{1,40})(?:\s*===?\s*|\s+@\s+"
    r"|\s{1,60})\(?v?(\d[\w.+!-]{0,60})\)?(?:\s+(\S+))?(?:\s+(\S+))?\s*$"
)
_INSTALLING = re.compile(
    r"requirement|no matching|satisf|pip3? install|conda install|uv (?:pip|add)|poetry add|requires?\b|looking in|>=|<=|~=|!=",
    re.I,
)
_BANNER = re.compile(rf"\btorch-({VERSION})\s+(CPU|CUDA:\d)(?:\s+\(([^)\n]{{3,60}})\))?", re.I)
_PRINTED = re.compile(rf"torch\.__version__\W{{0,12}}(?:Out\[\d+\]:\s*)?['\"]?({VERSION})", re.I)
_RUNS = re.compile(
    rf"(?:runtime|interpreter|import\w*|actually|really|python -c|script|process|app\w*"
    rf"|running)(?: \w+){{0,4}}?\W{{1,4}}(?:torch|pytorch)\W{{0,4}}({VERSION})",
    re.I,
)
_SHOWN = re.compile(rf"pip3? (?:show|list|freeze)(?:_| )?(?:torch)?[^\n]{{0,30}}?\b({VERSION})", re.I)
_CPU_MUTEX = re.compile(r"\bpytorch-mutex\s+[\d.]+\s+cpu\b|^[ \t]*(?:\[conda\][ \t]*)?cpuonly\s+\d", re.M)
_CONDA_FILE = re.compile(rf"\bpytorch[-= ]{{1,20}}({VERSION})[-= ]{{1,20}}((?:py|cuda|cpu|gpu)[\w.]{{1,60}})", re.I)
_NVCC = re.compile(r"release (\d{1,2}\.\d), V\d")
_NVIDIA_RUNTIME = re.compile(r"\bnvidia-cuda-runtime(?:-cu\d{2})?\s*(?:==|\s)\s*(\d{1,2}\.\d{1,2})")
_NO_TRITON = re.compile(r"no module named ['\"]?triton['\"]?(?:$|[^.\w])", re.I)


def read(text: Text, draft: Draft) -> None:
    _banners(text, draft)
    shown = ""
    for line in text.lines:
        if line.startswith("Name: "):
            shown = line[6:].strip().lower()
        elif line.startswith("Version: ") and shown == "torch":
            _package(draft, "torch", line[9:].strip(), "")
            shown = ""
        match = _LINE.match(line)
        if match and len(line) < 200 and not _INSTALLING.search(line):
            _package(draft, match[1].lower(), match[2], match[3] or "")
    if _CPU_MUTEX.search("\n".join(text.lines[:4000])):
        draft.put("torch.cuda", "none", Rank.LISTED)
    runtime = _NVIDIA_RUNTIME.search(text.flat)
    if runtime and isinstance(draft.facts.torch.cuda, Missing):
        draft.put("torch.cuda", runtime[1], Rank.GUESSED)
    conda = _CONDA_FILE.search(text.flat)
    if conda:
        _package(draft, "pytorch", conda[1], conda[2])
    nvcc = _NVCC.search(text.flat)
    if nvcc:
        draft.put("cuda.nvcc", nvcc[1], Rank.PRINTED)
        draft.add("cuda.toolkits", nvcc[1])
    _imported(text, draft)


def _banners(text: Text, draft: Draft) -> None:
    banner = _BANNER.search(text.flat)
    if banner:
        build = builds.parse(banner[1])
        if build:
            builds.record(draft, build, Rank.PRINTED)
        draft.put("torch.available", banner[2].upper() != "CPU", Rank.PRINTED)
        if banner[3] and banner[2].upper() != "CPU":
            draft.add("torch.devices", re.sub(r",.*", "", banner[3]))
    for pattern, rank in ((_RUNS, Rank.DENIED), (_PRINTED, Rank.PRINTED), (_SHOWN, Rank.LISTED)):
        match = pattern.search(text.flat)
        build = builds.parse(match[1]) if match else None
        if build:
            builds.record(draft, build, rank)


def _package(draft: Draft, name: str, version: str, string: str) -> None:
    if name in ("torch", "pytorch", "pytorch-gpu", "pytorch-cpu", "libtorch"):
        conda = bool(string) and bool(re.search(r"py|cpu|cuda", string))
        build = builds.of_conda(version, string) if conda else builds.parse(version)
        if build and len(version) < 50:
            builds.record(draft, build, Rank.LISTED)
            draft.put("torch.installer", "conda" if conda else "pip", Rank.LISTED)
        python = builds.python_of_conda(string) if conda else None
        if python:
            draft.put("python.version", python, Rank.GUESSED)
    elif name == "torchvision" and version.endswith("+cpu"):
        draft.put("torch.cuda", "none", Rank.GUESSED)
    elif name in ("triton", "pytorch-triton", "triton-windows"):
        draft.put("torch.triton", version, Rank.LISTED)
    elif name.startswith("nvidia-cudnn"):
        draft.put("torch.cudnn", version, Rank.LISTED)
    elif name in EXTENSIONS:
        _extension(draft, name, version)


def _extension(draft: Draft, name: str, version: str = "") -> None:
    found = draft.facts.torch.extensions
    name = name.replace("_", "-")
    if isinstance(found, list) and any(extension.name == name for extension in found):
        return
    draft.add("torch.extensions", Extension(name=name, version=version) if version else Extension(name=name))


def _imported(text: Text, draft: Draft) -> None:
    """Extensions whose files stand in a traceback: the one that failed is among them."""
    wanted = {name.replace("-", "_"): name for name in EXTENSIONS}
    for package in dict.fromkeys(re.findall(r"(?:site|dist)-packages[\\/](\w{3,40})[\\/]", text.flat)):
        if package.lower() in wanted:
            _extension(draft, wanted[package.lower()])
    if _NO_TRITON.search(text.flat):
        draft.put("torch.triton", Missing("not-installed"), Rank.PRINTED)
