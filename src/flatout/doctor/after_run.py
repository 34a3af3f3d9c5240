"""The doctor's rules over a finished run: what was measured, with file and line."""

from __future__ import annotations

from _flatout_agent.wire import TRAINING_PHASES
from flatout.doctor import registry
from flatout.doctor.model import Finding
from flatout.machine.model import Application, Driver, Facts, RunLook
from flatout.measure.model import Summary

# Rules that judge what a run has measured; the others judge a machine, and `flatout doctor` asks it anew.
RULES = ("AP504",)

# Below it a run is mostly its own warm-up, and shares mean nothing.
FEWEST_STEPS = 20


def findings(summary: Summary) -> list[Finding]:
    if summary.steps < FEWEST_STEPS or summary.training_s <= 0:
        return []
    facts = facts_of(summary)
    found = [rule.check(facts) for rule in registry.all_rules() if rule.code in RULES]
    return [finding for finding in found if finding is not None]


def facts_of(summary: Summary) -> Facts:
    machine = summary.machine
    run = RunLook(
        steps=summary.steps,
        training_s=summary.training_s,
        shares={name: summary.phases[name] / summary.training_s for name in TRAINING_PHASES},
        loaders=summary.loaders,
    )
    return Facts(
        source="run",
        system=machine.system,
        processor=machine.processor,
        memory=machine.memory,
        python=machine.python,
        driver=Driver(version=machine.driver, cuda=machine.cuda, gpus=machine.gpus),
        application=Application(run=run),
    )
