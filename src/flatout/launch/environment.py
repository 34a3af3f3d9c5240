"""The environment that makes every Python below us load the agent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import _flatout_agent
from _flatout_agent.wire import HELD_VARIABLE, JOB_VARIABLE, SWITCH_VARIABLE

INJECT = Path(_flatout_agent.__file__).parent / "inject"


def switched_off(environ: Mapping[str, str]) -> bool:
    return environ.get(SWITCH_VARIABLE, "").lower() == "off"


def injected(environ: Mapping[str, str], job: Path) -> dict[str, str]:
    """The user's environment, with our one folder first on PYTHONPATH and the job named."""
    path = environ.get("PYTHONPATH")
    # No trailing separator: an empty entry would put the working folder on the path.
    return {**environ, "PYTHONPATH": f"{INJECT}{os.pathsep}{path}" if path else str(INJECT), JOB_VARIABLE: str(job)}


def of_trial(environ: Mapping[str, str], job: Path, held: bool) -> dict[str, str]:
    """The same for a trial, which is not there without its agent: no switch turns it off. `held`: the agent must hold it."""
    told = {name: value for name, value in environ.items() if name not in (SWITCH_VARIABLE, HELD_VARIABLE)}
    return {**injected(told, job), **({HELD_VARIABLE: "1"} if held else {})}
