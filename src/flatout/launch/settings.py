"""Collects the knobs of a run: the profile beside the script, then flags, which win; contradictions are an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flatout.base.errors import UsageError
from flatout.base.records import Struct, field
from flatout.knobs import profile_file, values
from flatout.knobs.catalogue import RECORDED
from flatout.knobs.profile import Difference, Fingerprint, Profile, differences

FLAG, PROFILE = "flag", "profile"

# Variables under which a knob could do nothing, with the values that say so.
FORBIDDEN_BY = {
    "compile": {"TORCHDYNAMO_DISABLE": ("1",), "TORCH_COMPILE_DISABLE": ("1",)},
    "tf32": {"NVIDIA_TF32_OVERRIDE": ("0",)},
}
# Values that they do not touch.
UNTOUCHED = {"compile": (RECORDED,)}

# The allocator takes its settings from these; what they say beside what is asked for could not both be meant.
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
ALLOCATOR_SETTINGS = {"expandable": "expandable_segments:True", "roundup": "roundup_power2_divisions:8"}


class Flag(NamedTuple):
    """One knob as the command line has it."""

    shown: str  # --workers 8
    knob: str
    value: str


class Asked(Struct, kw_only=True):
    """What the command line says of knobs."""

    flags: list[Flag] = field(default_factory=list)
    profile: str | None = None
    no_profile: bool = False
    safe: bool = False


class Settings(Struct, kw_only=True):
    """What the agent is told, and whence."""

    values: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)  # knob -> flag or profile
    profile: Profile | None = None
    profile_path: str = ""
    applied: bool = False  # the profile is
    differing: list[Difference] = field(default_factory=list)  # where this is not what the profile was made for
    anonymous: bool = False  # the profile does not say what it was made for
    shapes: list[str] = field(default_factory=list)  # of the profile's batches: those of this run are seen by the agent
    arguments: dict[str, str] = field(default_factory=dict)  # put on the script's own command line
    given: str = ""  # what the command line says instead of the profile's

    @property
    def for_the_agent(self) -> dict[str, str]:
        """The batch belongs to the script: it is asked for by its own argument (`own_batch.py`), no hook can change it."""
        return {name: value for name, value in self.values.items() if name != "batch_size"}

    @property
    def made_for(self) -> dict[str, list[str]]:
        """What the agent compares before it puts the profile's knobs on; nothing where the profile was asked for by name."""
        names = [name for name in self.for_the_agent if self.sources.get(name) == PROFILE]
        return {"shapes": self.shapes, "knobs": names} if self.shapes and names else {}

    @property
    def plain(self) -> dict[str, float]:
        """What the plain script took when the profile was confirmed, if it was; not where it sets another batch."""
        promise = self.profile.promise if self.profile is not None and self.applied else None
        if promise is None or promise.plain_step_s is None or "batch_size" in self.values:
            return {}
        turn_s = promise.plain.get("turns", 0.0) / promise.epochs if promise.unit == "epoch" and promise.epochs > 0 else 0.0
        return {"step_s": promise.plain_step_s, **({"turn_s": turn_s} if turn_s else {})}

    @property
    def put_off(self) -> dict[str, int]:
        """Steps after which settings of the profile come on that cost time once; what flags say comes on at once."""
        promise = self.profile.promise if self.profile is not None and self.applied else None
        steps = promise.put_off if promise is not None else {}
        return {name: step for name, step in steps.items() if self.sources.get(name) == PROFILE}

    @property
    def check(self) -> bool:
        """A profile promised to be faster, and is taken back where it is not; a flag is what the user wants."""
        return PROFILE in self.sources.values()


def check_flags(asked: Asked, others: Sequence[str]) -> None:
    """`others` are further flags that `--safe` rules out, as they were written."""
    meant: dict[str, Flag] = {}
    for flag in asked.flags:
        before = meant.setdefault(flag.knob, flag)
        if before.value != flag.value:
            raise UsageError("error.flags-contradict", one=before.shown, other=flag.shown)
    if asked.profile is not None and asked.no_profile:
        raise UsageError("error.flags-contradict", one=f"--profile {asked.profile}", other="--no-profile")
    wanted = [*(flag.shown for flag in asked.flags if flag.value not in values.UNTOUCHED), *others]
    wanted += [f"--profile {asked.profile}"] if asked.profile is not None else []
    if asked.safe and wanted:
        raise UsageError("error.flags-contradict", one="--safe", other=wanted[0])


def find(asked: Asked, home: Path) -> Path | None:
    if asked.profile is not None:
        return Path(asked.profile)
    beside = home / profile_file.NAME
    return beside if not asked.no_profile and beside.is_file() else None


def decide(asked: Asked, path: Path | None, profile: Profile | None, differing: list[Difference]) -> Settings:
    """A profile for something else, or for nobody knows what, is put on only where it was asked for by name."""
    anonymous = profile is not None and profile.fingerprint == Fingerprint()
    applied = profile is not None and (asked.profile is not None or not (differing or anonymous))
    found = dict(profile.knobs) if profile is not None and applied else {}
    sources = dict.fromkeys(found, PROFILE)
    for flag in asked.flags:
        found[flag.knob], sources[flag.knob] = flag.value, FLAG
    wanted = values.put_on(found)
    values.check_together(found, _shown(asked, path if applied else None))
    return Settings(
        values=wanted,
        sources={name: sources[name] for name in wanted},
        profile=profile,
        profile_path=str(path or ""),
        applied=applied,
        differing=differing,
        anonymous=anonymous,
        shapes=list(profile.fingerprint.shapes) if profile is not None and asked.profile is None else [],
    )


def _shown(asked: Asked, path: Path | None) -> str:
    """What the user would change: the file, the flags, or both."""
    return ", ".join([*([str(path)] if path else []), *(flag.shown for flag in asked.flags)])


def check_environment(settings: Settings, environ: Mapping[str, str]) -> None:
    for name, variables in FORBIDDEN_BY.items():
        for variable, forbidding in variables.items():
            asked = settings.values.get(name)
            if asked is not None and asked not in UNTOUCHED.get(name, ()) and environ.get(variable) in forbidding:
                raise UsageError("error.knob-forbidden", name=name, value=asked, variable=variable, found=environ[variable])
    wanted = settings.values.get("allocator", "")
    for variable in ALLOCATOR_VARIABLES if wanted else ():
        found = environ.get(variable, "")
        if found and ALLOCATOR_SETTINGS[wanted].lower() not in found.lower().replace(" ", ""):
            raise UsageError("error.knob-forbidden", name="allocator", value=wanted, variable=variable, found=found)


def settle(asked: Asked, words: Sequence[str], python: str, environ: Mapping[str, str], gpu_id: str | None) -> Settings:
    """Flags and profile as one, for this script on this machine."""
    from flatout.launch import target

    path = find(asked, target.home(words))
    profile = profile_file.read(path) if path is not None else None
    differing: list[Difference] = []
    if profile is not None:
        from flatout.launch import fingerprint  # asks the driver and the interpreter: only where there is a profile

        present = fingerprint.here(python, target.script_file(words), environ, gpu_id, profile.fingerprint)
        differing = differences(profile.fingerprint, present)
    settings = decide(asked, path, profile, differing)
    check_environment(settings, environ)
    return settings
