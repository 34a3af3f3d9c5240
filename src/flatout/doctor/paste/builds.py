"""What a version or build string of torch says: which CUDA or ROCm it was built with, and for which Python."""

from __future__ import annotations

import re

from flatout.base.records import Struct
from flatout.doctor.paste.draft import Draft, Rank

# 2.7.1+cu118, 2.1.0.dev20230905, 1.14.0a0+44dac51c.nv23.01, 2.10.0+rocm7.13.0a20260508
VERSION = r"[012]\.\d{1,2}(?:\.\d{1,2})?(?:\.?(?:a|b|rc|post|dev)\d{1,8})?(?:\+[A-Za-z0-9.]{1,40})?"

_VERSION = re.compile(VERSION)
_CUDA_TAG = re.compile(r"cu(\d{2,3})$")
_CONDA_CUDA = re.compile(r"cuda[_-]?(\d{1,2}\.\d|\d{2,3})")
_CONDA_PYTHON = re.compile(r"py_?(3)\.?(\d{1,2})")


class Build(Struct, frozen=True, kw_only=True):
    version: str
    cuda: str | None = None  # "none" for a CPU build
    hip: str | None = None


def cuda_of_tag(tag: str) -> str | None:
    """ "cu118" and "118" are 11.8, "cu92" is 9.2."""
    digits = tag.removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}" if digits.isdigit() and 2 <= len(digits) <= 3 else None


def parse(text: str) -> Build | None:
    match = _VERSION.match(text.strip().strip("'\""))
    if not match:
        return None
    version = match.group().rstrip(".")
    local = version.partition("+")[2].lower()
    if local.startswith("cpu"):
        return Build(version=version, cuda="none")
    if local.startswith("rocm"):
        return Build(version=version, cuda="none", hip=re.match(r"[\d.]*", local[4:])[0].strip(".") or "unknown")  # type: ignore[index]
    tag = _CUDA_TAG.match(local)
    return Build(version=version, cuda=cuda_of_tag(tag[1]) if tag else None)


def of_conda(version: str, string: str) -> Build | None:
    """`py3.9_cuda11.7_cudnn8.5.0_0`, `py3.8_cpu_0`, `cuda118_py310h…`, `cpu_generic_py310…`."""
    found = parse(version)
    if found is None:
        return None
    lower = string.lower()
    cuda = _CONDA_CUDA.search(lower)
    if cuda:
        value = cuda[1] if "." in cuda[1] else cuda_of_tag(cuda[1])
        return Build(version=found.version, cuda=value)
    if re.search(r"(?:^|_)cpu(?:_|$)", lower):
        return Build(version=found.version, cuda="none")
    return found


def python_of_conda(string: str) -> str | None:
    match = _CONDA_PYTHON.search(string)
    return f"{match[1]}.{match[2]}" if match else None


def base(version: str) -> str:
    return version.partition("+")[0]


def record(draft: Draft, build: Build, rank: Rank) -> None:
    """The version and what follows from it; a second torch of another version goes to the others."""
    known = draft.facts.torch.version
    held = draft.rank("torch.version")
    if isinstance(known, str) and base(known) == base(build.version):
        if "+" in build.version and "+" not in known and rank >= Rank.SAID:
            draft.facts.torch.version = build.version
        _put_build(draft, build, rank)
        return
    if isinstance(known, str) and min(rank, held) >= Rank.LISTED:
        draft.add("torch.others", known if rank > held else build.version)
    if draft.put("torch.version", build.version, rank):
        _forget_build(draft, rank)
        _put_build(draft, build, rank)


def _forget_build(draft: Draft, rank: Rank) -> None:
    """What the version before it was built with says nothing of this one."""
    fresh = type(draft.facts.torch)()
    for name in ("cuda", "hip"):
        if draft.rank(f"torch.{name}") < rank:
            setattr(draft.facts.torch, name, getattr(fresh, name))


def _put_build(draft: Draft, build: Build, rank: Rank) -> None:
    if build.cuda:
        draft.put("torch.cuda", build.cuda, rank)
    if build.hip:
        draft.put("torch.hip", build.hip, rank)
