"""The environment that makes every Python below us load the agent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import _flatout_agent
from _flatout_agent.wire import JOB_VARIABLE, SWITCH_VARIABLE

INJECT = Path(_flatout_agent.__file__).parent / "inject"


def switched_off(environ: Mapping[str, str]) -> bool:
    return environ.get(SWITCH_VARIABLE, "").lower() == "off"


def injected(environ: Mapping[str, str], job: Path) -> dict[str, str]:
    """The user's environment, with our one folder first on PYTHONPATH and the job named."""
    path = environ.get("PYTHONPATH")
    # No trailing separator: an empty entry would put the working folder on the path.
    return {**environ, "PYTHONPATH": f"{INJECT}{os.pathsep}{path}" if path else str(INJECT), JOB_VARIABLE: str(job)}
