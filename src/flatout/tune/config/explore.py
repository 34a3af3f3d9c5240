"""Spare capacity: what another value of a key would cost, each in children of a temporary configuration. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flatout.base.errors import UsageError
from flatout.base.records import Missing
from flatout.machine.config_tree import Entry
from flatout.tune.config import splice
from flatout.tune.config.changed_values import value_text
from flatout.tune.config.config_file import Configuration
from flatout.tune.config.measure import FEWEST_STEPS, Arm, segment
from flatout.tune.config.wishes import Reading
from flatout.tune.search.questions_and_answers import Plan, SegmentResult

ROUNDS = 2  # up and down again: what drifts meets both ends


def asked(text: str) -> tuple[str, list[str]]:
    """`base_channels=32,64,96`."""
    name, equals, values = text.partition("=")
    found = [value.strip() for value in values.split(",") if value.strip()]
    if not equals or not name.strip() or not found:
        raise UsageError("config-error.explore", written=text)
    return name.strip(), list(dict.fromkeys(found))


def values_of(configuration: Configuration, entry: Entry, values: Sequence[str]) -> dict[str, str]:
    """Each value and the text of the configuration that has it; the file's own value first."""
    current = value_text(entry, configuration)
    texts = {}
    for value in [*([current] if current else []), *values]:
        written = f"{entry.quote}{value}{entry.quote}"
        edit = splice.replaced(configuration, entry, written)
        if edit is None:
            raise UsageError("config-error.explore-fixed", place=".".join(entry.path))
        texts[value] = configuration.text if value == current else splice.checked(configuration, [edit])[0]
    return texts


def measure(values: Sequence[str], current: str, arm_of: Callable[[str], Arm], told: Callable[[str], None]) -> list[Reading]:
    readings = {
        value: Reading(
            value=value, current=value == current, rates=[], rate=Missing("not-measured"), memory_peak=Missing("not-reported")
        )
        for value in values
    }
    number = 0
    for turn in range(ROUNDS):
        for value in values if turn % 2 == 0 else list(reversed(values)):
            reading = readings[value]
            if reading.status != "ok":
                continue  # what failed once is not run again
            told(value)
            number += 1
            arm = arm_of(value)
            ready = arm.look()
            if ready is None:
                reading.status = "no-step"
            else:
                _note(reading, arm.carry_out(segment(number, Plan(offers=[], workers=int(ready.get("workers") or 0)))))
            arm.stop()
    return list(readings.values())


def _note(reading: Reading, result: SegmentResult) -> None:
    if result.fault or isinstance(result.rate, Missing) or result.steps < FEWEST_STEPS:
        reading.status = result.status.value if result.fault else "too-short"
        return
    reading.rates.append(result.rate)
    reading.rate = sum(reading.rates) / len(reading.rates)
    peaks = [peak for peak in (reading.memory_peak, result.memory_peak) if isinstance(peak, int)]
    reading.memory_peak = max(peaks) if peaks else Missing("not-reported")
