"""`flatout tune --config FILE`: the optimised configuration, estimated without a command and measured with one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from flatout.base import records
from flatout.base.clock import SystemClock
from flatout.base.errors import UsageError
from flatout.base.records import Missing
from flatout.base.whole_number import whole_number
from flatout.base.words import Words
from flatout.cli import batch_flags, parity_gate, protected
from flatout.cli.commandline import write_record
from flatout.knobs.model import Numerics
from flatout.launch import interpreter, target
from flatout.launch.own_argument import Argument
from flatout.measure.parity import Verdict
from flatout.report import tune_config as report
from flatout.tune.batch.command_line import BatchLine, Road
from flatout.tune.config import changed_values, config_file, estimate, explore, known_keys, machine_facts, measure
from flatout.tune.config.changed_values import Applied
from flatout.tune.config.measure import PLACEHOLDER
from flatout.tune.config.wishes import ConfigOutcome, Explored, How, State, Verification, Wish
from flatout.tune.execution.trial_runner import Trials
from flatout.tune.search.questions_and_answers import Finished

RECORD = "config.json"
WRITTEN = (State.CHANGED, State.INSERTED)
APART = Missing("not-measured")


class Screen(Protocol):
    words: Words

    def say(self, sentence: str) -> None: ...
    def hint(self, sentence: str) -> None: ...
    def show(self, renderable: Any) -> None: ...


class ConfigTask:
    """One configuration: estimated, measured or explored."""

    def __init__(self, script: Sequence[str], asked: Mapping[str, Any], screen: Screen) -> None:
        self.asked = asked
        self.screen = screen
        self.words = screen.words
        self.configuration = config_file.read(Path(asked["config"]))
        self.source = self.configuration.path
        self.own = known_keys.own_keys(self.configuration, _pairs(asked["key"]))
        self._script = list(script)
        self._kept = contextlib.ExitStack()
        self._said_how = False  # trials are held
        self._sizes: dict[int, Path] = {}
        self._explore = [explore.asked(text) for text in asked["explore"]]
        if script:
            self._check_placeholder(script)
        elif self._explore:
            raise UsageError("config-error.explore-command", placeholder=PLACEHOLDER)
        self.target = Path(asked["output"]) if asked["output"] else config_file.target_of(self.source)
        if not self._explore and not asked["dry_run"]:
            config_file.check_target(self.source, self.target, bool(asked["output"] or asked["force"]))

    def _check_placeholder(self, script: Sequence[str]) -> None:
        count = sum(word.count(PLACEHOLDER) for word in script)
        if count == 0:
            raise UsageError("config-error.placeholder-missing", placeholder=PLACEHOLDER)
        if count > 1:
            raise UsageError("config-error.placeholder-twice", placeholder=PLACEHOLDER, count=count)

    def command(self, path: Path | None = None) -> list[str]:
        """The words of the command with a configuration in their place."""
        return [word.replace(PLACEHOLDER, str(path or self.source)) for word in self._script]

    @property
    def exploring(self) -> bool:
        return bool(self._explore)

    # -- another batch size ------------------------------------------------------------------------------------------

    def __enter__(self) -> ConfigTask:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def as_argument(self, key: str) -> Argument | Missing:
        """A key of the file as what the batch, or its learning rate, is changed by; missing where it has no plain number."""
        found = known_keys.find(self.configuration, key, self.own)
        value = changed_values.value_text(found.entry, self.configuration) if found.entry is not None else None
        if (
            found.entry is None
            or not value
            or changed_values.words_for(found.key, _like(value), found.entry, self.configuration) is None
        ):
            return Missing("no-such-key")
        flag = ".".join(found.path)
        return Argument(flag=flag, names=(flag,), value=value, source=Road.CONFIGURATION.value)

    def at_size(self, line: BatchLine, size: int) -> list[str]:
        """The command with a configuration for this batch size, which lies beside the original until the search has ended."""
        if size not in self._sizes:
            text = self._applied(measure.sized(line, size), _nothing).text
            self._sizes[size] = self._kept.enter_context(self._beside(self.source.parent, text))
        python, _ = interpreter.choose(self.asked["python"], os.environ)
        return target.command_line(python, self.command(self._sizes[size]))

    # -- without a command ---------------------------------------------------------------------------------------

    def estimate(self) -> int:
        name = self.asked["preset"] or estimate.USUAL
        estimate.preset_of(name)
        python, _ = interpreter.choose(self.asked["python"], os.environ)
        facts = machine_facts.facts(os.environ, self.asked["card"], None if self.asked["card"] else python)
        applied = self._applied(estimate.wishes(facts, name), changed_values.insertable(self.configuration.json))
        if not self.asked["dry_run"]:
            config_file.write(self.configuration, self.target, applied.text)
        outcome = ConfigOutcome(
            source=str(self.source),
            target=Missing("dry-run") if self.asked["dry_run"] else str(self.target),
            how=How.ESTIMATED,
            changes=applied.changes,
            ground=estimate.ground(facts, name),
        )
        self._tell(outcome, None)
        return 0

    def _applied(self, wishes: Sequence[Wish], naming: changed_values.Naming) -> Applied:
        if self.asked["no_insert"]:
            naming = _nothing
        return changed_values.apply(self.configuration, wishes, self.own, naming)

    def _tell(self, outcome: ConfigOutcome, place: Path | None) -> None:
        self.screen.show(report.render(outcome, self.words))
        if place is not None:
            records.write(place / RECORD, outcome)
        if self.asked["as_json"]:
            write_record(records.encode(outcome).decode())

    # -- with one ------------------------------------------------------------------------------------------------

    def conclude(
        self, end: Finished, ready: dict[str, Any], place: Path, line: list[str], asked: dict[str, Any], screen: Any
    ) -> int:
        """After the search: what was kept goes into the file as far as a key can say it, and the file is measured."""
        from flatout.tune.execution import kept_profile as profiles

        records.write(place / "tune.json", end)
        if end.ending in ("baseline-fails", "too-short"):
            return 1
        naming = changed_values.read_by(measure.sources_of(target.script_file(line[1:])))
        applied, verification = self._verified(end, ready, place, naming)
        good = _may_be_written(verification)
        if good:
            config_file.write(self.configuration, self.target, applied.text)
        rest = measure.remaining(end.profile, applied.changes) if good else dict(end.profile)
        if end.batch is not None and end.batch.road == Road.CONFIGURATION:
            rest.pop("batch_size", None)  # a profile has no word for it: the file does, or nobody
        outcome = ConfigOutcome(
            source=str(self.source),
            target=str(self.target) if good else Missing("not-written"),
            how=How.MEASURED,
            changes=applied.changes,
            profile=rest,
            verification=verification,
            search=end,
        )
        self._tell(outcome, place)
        for sentence in batch_flags.sentences(end.batch, self.words) if good else []:
            screen.say(sentence)
        if rest:
            # The gain that was measured is that of the whole, and part of the whole stands in the file now.
            whole = end if rest == end.profile else records.replace(end, speedup=APART, lower=APART, upper=APART)
            path = profiles.write_profile(records.replace(whole, profile=rest), ready, line, SystemClock().wall())
            key = "config.rest" if good else "config.rest-left"
            screen.say(self.words(key, knobs=", ".join(rest), path=str(path)))
        screen.say(self.words("tune.record", path=str(place / RECORD)))
        return 0 if good else 1

    def _verified(
        self, end: Finished, ready: Mapping[str, Any], place: Path, naming: changed_values.Naming
    ) -> tuple[Applied, Verification]:
        wishes = measure.wishes_of(end)
        applied = self._applied(wishes, naming)
        unread: list[str] = []
        while any(change.state in WRITTEN for change in applied.changes):
            with self._beside(self.target.parent, applied.text) as path, self._arms(place) as arm_of:
                new = arm_of(path)
                self.screen.hint(self.words("config.looking"))
                seen = new.look()
                if seen is None:
                    return applied, Verification(done=False, code="new-fails", said=_last_line(new.said), unread=unread)
                ignored = measure.unread(seen, applied.changes)
                if not ignored:
                    workers = {"old": int(ready.get("workers") or 0), "new": int(seen.get("workers") or 0)}
                    begun = end.batch.begun if end.batch is not None else None
                    old = arm_of(self._sizes.get(begun or 0, self.source))  # at its own batch the script may not start
                    found = measure.verify(old, new, workers, end.noise, self._told)
                    found.unread = unread
                    if _may_be_written(found) and not self.asked["no_parity"] and _rounds_differently(applied):
                        with self._with_its_batch(wishes) as plain:
                            self._compare_learning(old if plain == self.source else arm_of(plain), new, found, place)
                    return applied, found
            unread += ignored
            wishes = [wish for wish in wishes if wish.key not in ignored]
            applied = self._applied(wishes, naming)
        return applied, Verification(done=False, code="nothing-changed", unread=unread)

    @contextlib.contextmanager
    def _with_its_batch(self, wishes: Sequence[Wish]) -> Iterator[Path]:
        """What the new file's losses can be compared with: the old one, and with the new batch size if that changed."""
        batch = [wish for wish in wishes if wish.key in ("batch_size", "lr")]
        if not batch:
            yield self.source
            return
        with self._beside(self.source.parent, self._applied(batch, _nothing).text) as path:
            yield path

    def _compare_learning(self, old: Trials, new: Trials, found: Verification, place: Path) -> None:
        """The trials proved the knob; the script's own switch may mean something else (fp16 without scaling)."""
        from flatout.tune.confirmation.parity_runs import Gate

        gate = Gate(
            lambda values, steps, seed, draws: (new if values else old).curve({}, steps, seed, draws),
            lambda what: self.screen.hint(self.words("tune.parity-running", what=what)),
        )
        found.parity = gate.check({"config": "new"})
        parity_gate.draw(gate, found.parity, place, self.screen)

    def _told(self, pair: int, pairs: int) -> None:
        self.screen.hint(self.words("config.verifying", pair=pair, pairs=pairs))

    @contextlib.contextmanager
    def _beside(self, folder: Path, text: str) -> Iterator[Path]:
        """A temporary configuration where the real one will lie: scripts read paths relative to it."""
        begins, ends = f".{self.source.stem}-", self.source.suffix
        try:
            descriptor, name = tempfile.mkstemp(prefix=begins, suffix=ends, dir=folder)
        except OSError:
            descriptor, name = tempfile.mkstemp(prefix=begins, suffix=ends)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(self.configuration.bytes_of(text))
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _arms(self, place: Path) -> Iterator[Callable[[Path], Trials]]:
        """Trials of the command with this or that configuration, one child at a time, under one protection."""
        python, _ = interpreter.choose(self.asked["python"], os.environ)
        line = target.command_line(python, self.command())
        with contextlib.ExitStack() as stack:
            held = stack.enter_context(protected.protection_for(line, self.asked))
            if self.exploring and not self._said_how:  # a search has said so before
                self._said_how = True
                for sentence in protected.sentences(held, self.words, bool(self.asked.get("allow_network"))):
                    self.screen.say(sentence)

            def arm_of(path: Path) -> Trials:
                words = target.command_line(python, self.command(path))
                fraction = self.asked["gpu_memory_fraction"]
                return stack.enter_context(Trials(words, os.environ, held, SystemClock(), place / "trials.log", fraction))

            yield arm_of

    # -- spare capacity --------------------------------------------------------------------------------------------

    def explore(self, place: Path) -> int:
        found = []
        for name, values in self._explore:
            entry = known_keys.explored(self.configuration, name, self.own)
            texts = explore.values_of(self.configuration, entry, values)
            with contextlib.ExitStack() as stack:
                paths = {value: stack.enter_context(self._beside(self.source.parent, text)) for value, text in texts.items()}
                arm_of = stack.enter_context(self._arms(place))
                current = changed_values.value_text(entry, self.configuration) or ""
                readings = explore.measure(
                    list(texts),
                    current,
                    lambda value, paths=paths, arm_of=arm_of: arm_of(paths[value]),  # type: ignore[misc]
                    lambda value, name=name: self.screen.hint(  # type: ignore[misc]
                        self.words("config.explore-running", name=name, value=value)
                    ),
                )
            one = Explored(key=name, path=".".join(entry.path), readings=readings, memory_total=_card_memory())
            self.screen.show(report.explored(one, self.words))
            found.append(one)
        outcome = ConfigOutcome(
            source=str(self.source), target=Missing("not-written"), how=How.MEASURED, changes=[], explored=found
        )
        records.write(place / RECORD, outcome)
        if self.asked["as_json"]:
            write_record(records.encode(outcome).decode())
        return 0 if any(reading.rates for one in found for reading in one.readings) else 1


def _pairs(written: Sequence[str]) -> dict[str, str]:
    return {name.strip(): path.strip() for name, _, path in (text.partition("=") for text in written)}


def _like(value: str) -> int | str:
    number = whole_number(value)
    return value if number is None else number


def _last_line(text: str) -> str:
    return next((one.strip() for one in reversed(text.splitlines()) if one.strip()), "")


def _nothing(key: Any) -> None:
    return None


def _rounds_differently(applied: Applied) -> bool:
    return any(one.numerics is Numerics.TOLERANCE and one.state in WRITTEN for one in applied.changes)


def _may_be_written(found: Verification) -> bool:
    if found.parity is not None and found.parity.verdict is not Verdict.PASS:
        return False
    if found.done and found.comparison is not None:
        return found.comparison.answer != "slower"
    return found.code in ("nothing-changed", "too-short")


def _card_memory() -> int | Missing:
    from flatout.machine import nvml

    gpus = nvml.driver().gpus
    return Missing("no-device") if isinstance(gpus, Missing) or not gpus else gpus[0].memory_total_bytes
