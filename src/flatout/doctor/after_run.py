"""The doctor's rules over a finished run: what was measured, with file and line."""

from __future__ import annotations

from collections.abc import Sequence

from _flatout_agent.wire import TRAINING_PHASES
from flatout.base.records import Missing, replace
from flatout.doctor import registry, root_cause
from flatout.doctor.model import Finding, Severity
from flatout.knobs.model import Came
from flatout.machine.machine_facts import Application, Driver, Facts, Symptom
from flatout.machine.run_look import LoaderUse, OutOfMemory, RunLook
from flatout.measure.model import Summary

# Rules that judge what a run has measured; the others judge a machine, and `flatout doctor` asks it anew.
STOPPED = ("AP503", "AP508", "AP509", "AP511")  # why a run could not go on
ALWAYS = ("AP513", "AP526")
TIMED = ("AP504", "AP510", "AP512", "AP514", "AP517", "AP518", "AP521", "AP522", "AP523", "AP524", "AP525", "AP527")

# What is wrong with a script comes before what is slow in it.
DEFECTS = ("AP512",)

ON = (Came.APPLIED, Came.UNPROVED, Came.ALREADY)

# Below it a run is mostly its own warm-up, and shares mean nothing.
FEWEST_STEPS = 20


def findings(summary: Summary) -> list[Finding]:
    """Consequences explained away; faults first, then by the share of the time that each explains."""
    codes = set(ALWAYS)
    if summary.out_of_memory is not None or summary.device_mix is not None:
        codes.update(STOPPED)
    if summary.steps >= FEWEST_STEPS and summary.training_s > 0:
        codes.update(TIMED)
    facts = facts_of(summary)
    rules = registry.all_rules()
    found = [rule.check(facts) for rule in rules if rule.code in codes]
    kept = root_cause.without_consequences([finding for finding in found if finding is not None], rules)
    on = facts.application.run.knobs
    for finding in kept:
        finding.knobs = [name for name in finding.knobs if name not in on]
    return sorted(kept, key=_rank)


def _rank(finding: Finding) -> tuple[int, bool, float, bool, str]:
    share = finding.evidence.get("share")
    cost = float(share) if isinstance(share, int | float) else 0.0
    return list(Severity).index(finding.severity), finding.code not in DEFECTS, -cost, not finding.certain, finding.code


def facts_of(summary: Summary) -> Facts:
    machine = summary.machine
    return Facts(
        source="run",
        system=machine.system,
        processor=machine.processor,
        memory=machine.memory,
        python=machine.python,
        driver=Driver(version=machine.driver, cuda=machine.cuda, gpus=machine.gpus),
        application=Application(run=_look(summary)),
        symptoms=[*_shortage(summary.out_of_memory), *_mismatch(summary)],
    )


def _shares(summary: Summary) -> dict[str, float]:
    """Of the training time. Waiting and copying are the figures of the verdict: one figure for one thing."""
    spent = summary.training_s
    if spent <= 0:
        return {}
    whole = {name: summary.phases.get(name, 0.0) / spent for name in TRAINING_PHASES}
    whole["script"] -= summary.script_outside_s / spent
    return {**whole, **{name: share for name, share in summary.bound_evidence.items() if name in ("input", "copy")}}


def _look(summary: Summary) -> RunLook:
    spent = summary.training_s
    knobs = {use.name: use.value for use in summary.knobs if use.came in ON}
    return RunLook(
        steps=summary.steps,
        wall_s=summary.wall_s,
        training_s=spent,
        shares=_shares(summary),
        bound_by=summary.bound_by,
        script=next((word for word in summary.command[1:] if word.endswith(".py")), Missing("not-reported")),
        loaders=[_as_served(use, knobs) for use in summary.loaders],
        knobs=knobs,
        device=summary.device,
        losses=summary.losses,
        gpus=summary.gpus,
        host=summary.host,
        out_of_memory=summary.out_of_memory,
        device_mix=summary.device_mix,
    )


def _as_served(use: LoaderUse, knobs: dict[str, str]) -> LoaderUse:
    """With the settings that flatout served its batches with, rather than those that the script wrote."""
    workers = knobs.get("workers", "")
    return replace(
        use,
        workers=int(workers) if workers.isdigit() else use.workers,
        pin_memory=use.pin_memory or "pin_memory" in knobs,
        persistent_workers=use.persistent_workers or "persistent_workers" in knobs,
    )


def _read(message: str) -> Sequence[Symptom]:
    from flatout.doctor.paste import reader  # hundreds of patterns, which most runs do not need

    return reader.read(message).symptoms


def _shortage(told: OutOfMemory | None) -> list[Symptom]:
    """torch's message as if it had been pasted; what it does not say, its allocator did."""
    if told is None:
        return []
    symptoms = [item for item in _read(told.message) if item.code == "out-of-memory"]
    memory = told.memory
    counted = {
        "allocated_bytes": memory.allocated_bytes,
        "reserved_bytes": memory.reserved_bytes,
        "total_bytes": memory.total_bytes,
    }
    known = {name: value for name, value in counted.items() if not isinstance(value, Missing)}
    said = symptoms[0].params if symptoms else {}
    # Both or neither: the message's "reserved" is another figure than the allocator's.
    return [Symptom(code="out-of-memory", params={**({} if "allocated_bytes" in said else known), **said})]


def _mismatch(summary: Summary) -> list[Symptom]:
    if summary.device_mix is None:
        return []
    symptoms = [item for item in _read(summary.device_mix.message) if item.code == "device-mismatch"]
    return symptoms[:1] or [Symptom(code="device-mismatch")]
