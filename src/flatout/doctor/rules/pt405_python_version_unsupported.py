"""PT405 python-version-unsupported: there is no torch wheel for this Python."""

from __future__ import annotations

import re

from flatout.doctor import queries
from flatout.doctor.model import Finding, Fix, Layer, Rule
from flatout.doctor.request import Request, listed_versions, refused
from flatout.machine import compatibility
from flatout.machine.machine_facts import Facts
from flatout.machine.versions import minor, parse

# All that PyPI offers to a Python without wheels are the placeholders of 2017; whoever sees only these has no wheel.
PLACEHOLDERS = re.compile(r"0\.1\.")


def check(facts: Facts) -> Finding | None:
    python, bits = queries.known(facts.python.version), queries.known(facts.python.bits)
    asked = refused(facts)
    wanted = asked.version if asked else None
    if asked is None and facts.torch.status not in ("not-installed", "import-failed"):
        return None  # whatever this Python is, it has a torch
    certain, reason = _why(python, bits, wanted), "range"
    if bits == 32:
        reason = "32-bit"
    elif not certain:
        if asked is None or not _looks_like_it(facts, asked):
            return None
        reason = "offered"
    known_range = compatibility.pythons_of(wanted) if wanted else (None, compatibility.newest_python())
    low, high = known_range or (None, None)
    return RULE.found(
        *_fix(facts, wanted, high),
        certain=certain,
        python=f"{python or ''} (32-bit)".strip() if bits == 32 else python,
        bits=bits,
        wanted=wanted,
        oldest=low,
        newest=high,
        reason=reason,
        interpreter=facts.python.path,
    )


def _why(python: str | None, bits: int | None, wanted: str | None) -> bool:
    """Whether the facts alone say that no wheel exists."""
    if bits == 32:
        return True
    if python is None or len(parse(python)) < 2:
        return False
    return not compatibility.python_runs(python, wanted) if wanted else not compatibility.python_has_wheels(python)


def _looks_like_it(facts: Facts, asked: Request) -> bool:
    """Only placeholders were offered, or only releases newer than the one asked for; or nothing, from an index that has it."""
    offered, python = listed_versions(facts), queries.known(facts.python.version)
    real = [version for version in offered if not PLACEHOLDERS.match(version)]
    if offered and not real:
        return True
    if python and asked.version:
        return False  # the table has been asked already, and this Python is in it
    if asked.variant is not None and compatibility.index_exists(asked.variant) is not True:
        return False
    if asked.variant is not None and asked.version and asked.variant not in compatibility.variants_of(asked.version):
        return False
    if real:
        return asked.version is not None and all(parse(version) > parse(asked.version) for version in real)
    return python is None or facts.python.bits != 64 or not compatibility.python_has_wheels(python)


def _fix(facts: Facts, wanted: str | None, newest: str | None) -> list[Fix]:
    """An environment with a Python that has wheels: the newest that torch supports, less one for what lags behind."""
    version = minor(newest) if newest else "3.12"
    if wanted is None and parse(version) >= (3, 13):
        version = "3.12"  # every release since 2.2 has wheels for it, and so do most packages beside torch
    if queries.system(facts) == "Windows":
        make = [Fix(command=f"winget install Python.Python.{version}"), Fix(command=f"py -{version} -m venv venv")]
        python = r"venv\Scripts\python"
    elif facts.python.environment == "conda":
        make, python = [Fix(command=f"conda create -y -n torch python={version} && conda activate torch")], "python"
    else:
        make, python = [Fix(command=f"python{version} -m venv venv")], "venv/bin/python"
    card, driver = queries.capability(facts), queries.known(facts.driver.version)
    wheel = compatibility.best_wheel(card, driver, queries.system(facts), version, wanted)
    torch = f'"torch=={wanted}"' if wanted else "torch"
    source = f" --index-url {compatibility.index_url(wheel.variant)}" if wheel else ""
    return [Fix(text="64-bit"), *make, Fix(command=f"{python} -m pip install {torch}{source}")]


RULE = Rule(
    code="PT405",
    name="python-version-unsupported",
    layer=Layer.PYTORCH,
    check=check,
    explains=("torch-not-installed", "torch-import-broken"),
)
