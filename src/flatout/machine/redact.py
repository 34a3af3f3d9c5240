"""Facts that may be shown to strangers: without user and host names, private folders, serials and UUIDs.

What stays is what a diagnosis needs: versions, codes, which kind of folder a library lies in, and whether two things
lie in the same place or carry the same UUID. So every private word gets a stand-in, the same one wherever it occurs.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import platform
import re
from collections.abc import Callable, Iterable
from typing import Any

from flatout.base import records
from flatout.machine.machine_facts import Facts
from flatout.machine.probes.environment import gpu_related

UUID = re.compile(
    r"\b(?P<kind>(?:MIG-)?GPU-|MIG-|)(?P<number>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", re.I
)
SHORT_UUID = re.compile(r"\b(GPU|MIG)-([0-9a-f]{4,8})(?![0-9a-f-])", re.I)
SERIAL = re.compile(r"(serial(?: number)?\s*[:=]?\s*)[\w-]*\d[\w-]*", re.I)
ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b(?=:\d|\b)")
MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")
PROCESS = re.compile(r"(\bname=)([^,\s]+)")
# A path inside a text: from a root on; a folder's name may hold spaces where a backslash follows it.
PATH = re.compile(r"(?<![\w:/.~\\])(?:/[^\s/:;,'\"<>|()\[\]]+)+/?|\b[A-Za-z]:\\(?:[^\\/:;,'\"<>|\n]+\\)*[^\\/\s:;,'\"<>|()]*")

SYSTEM_ROOTS = re.compile(r"bin|boot|dev|etc|lib(32|64)?|nix|proc|run|sbin|snap|sys|usr|var")
WINDOWS_ROOTS = ("windows", "program files", "program files (x86)", "programdata")
PUBLIC = re.compile(
    r"\.?venv|env|envs|\.local|\.conda|\.pyenv|\.cache|\.virtualenvs|(mini|ana|mamba)?(conda|forge)\d*|mambaforge|micromamba|versions"
    r"|bin|scripts|dlls|library|lib(32|64)?|include|site-packages|dist-packages|pkgs|python[\d.]*(\.exe)?|pythonw?\.exe"
    r"|torch|nvidia|cuda(-?[\d.]+)?|cudnn[\d.]*|nccl|triton|stubs|compat|home|users|root|tmp|mnt|c|opt|rocm[-.\d]*|appdata|local|programs|roaming"
    r"|__init__\.py|lib[\w.+-]+\.(so|dylib)[.\d]*|[\w.+-]+\.dll|version\.(py|txt|json)",
    re.I,
)
# Programs that run on everybody's card; another name may be the name of somebody's project.
PROGRAMS = re.compile(
    r"python[\d.]*w?(\.exe)?|x(org|wayland)?|gnome-\w+|kwin\w*|plasmashell|chrom(e|ium)\S*|firefox\S*|msedge\S*|code\S*|ollama\S*"
    r"|explorer\.exe|dwm\.exe|steam\S*|nvidia-\S+|jupyter\S*|docker\S*|\[?not found\]?|-",
    re.I,
)
# Names too common to be anybody's, or words of the facts themselves.
NOT_NAMES = re.compile(
    r"root|user|admin|administrator|ubuntu|debian|linux|windows|docker|conda|python|torch|cuda|nvidia|gpu|localhost|home", re.I
)


def redact(facts: Facts, names: Iterable[str] | None = None) -> Facts:
    """`names` are the words to take out wherever they stand: by default this user's and this machine's."""
    plain = json.loads(records.encode(facts))
    clean = _Redaction(own_names() if names is None else names).walk(plain, ())
    return records.decode(json.dumps(clean), Facts)


def own_names() -> list[str]:
    found = [os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME")]
    with contextlib.suppress(OSError, KeyError, ImportError):  # a user without a name: common in containers
        found.append(getpass.getuser())
    host = platform.node()
    return [*found, os.path.basename(os.path.expanduser("~")), host, host.split(".")[0]]


class _StandIns:
    """word1, word2 … in the order in which the words are met."""

    def __init__(self, make: Callable[[int], str]) -> None:
        self._make = make
        self._known: dict[str, str] = {}

    def of(self, word: str) -> str:
        return self._known.setdefault(word.lower(), self._make(len(self._known)))

    def starting_with(self, word: str) -> str | None:
        return next((stand_in for known, stand_in in self._known.items() if known.startswith(word.lower())), None)


class _Redaction:
    def __init__(self, names: Iterable[str]) -> None:
        wanted = {name for name in names if len(name) > 2 and not NOT_NAMES.fullmatch(name)}
        self._names = (
            re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in sorted(wanted)), re.I) if wanted else None
        )
        self._numbers = _StandIns(lambda count: f"{count:08d}-0000-0000-0000-000000000000")
        self._folders = _StandIns(lambda count: f"folder{count + 1}")
        self._programs = _StandIns(lambda count: f"program{count + 1}")

    def walk(self, value: Any, where: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            if where == ("application", "environment"):
                return {name: self._variable(name, text) for name, text in value.items()}
            return {name: self.walk(part, (*where, name)) for name, part in value.items()}
        if isinstance(value, list):
            return [self.walk(part, where) for part in value]
        return self._string(value, where) if isinstance(value, str) else value

    def _string(self, text: str, where: tuple[str, ...]) -> str:
        if where == ("python", "path"):
            # Its name is enough for a command to type; where it lies is private.
            return re.split(r"[\\/]", text)[-1]
        if where[-2:] == ("processes", "name"):
            return text if PROGRAMS.fullmatch(text) else self._programs.of(text)
        return self.path(text) if where[-1] == "path" else self.text(text)

    def _variable(self, name: str, text: str) -> str:
        if not gpu_related(name) and not name.endswith(("_THREADS", "LIBRARY_PATH", "RANK", "WORLD_SIZE")):
            return "(set)" if text else ""
        return ":".join(self.text(part) for part in text.split(":")) if name == "LD_LIBRARY_PATH" else self.text(text)

    def text(self, text: str) -> str:
        text = PATH.sub(lambda match: self.path(match[0]), text)
        text = UUID.sub(lambda match: match["kind"] + self._numbers.of(match["number"]), text)
        text = SHORT_UUID.sub(self._short, text)
        text = SERIAL.sub(r"\g<1>0", text)
        text = MAIL.sub("(mail)", text)
        if not ADDRESS.fullmatch(text):  # alone it is a version
            text = ADDRESS.sub(_address, text)
        text = PROCESS.sub(
            lambda match: match[1] + (match[2] if PROGRAMS.fullmatch(match[2]) else self._programs.of(match[2])), text
        )
        return self._names.sub("(name)", text) if self._names else text

    def _short(self, match: re.Match[str]) -> str:
        """CUDA_VISIBLE_DEVICES takes the beginning of a UUID: it must still meet the card it means."""
        whole = self._numbers.starting_with(match[2])
        return f"{match[1]}-{whole[:8]}" if whole else f"{match[1]}-{'f' * len(match[2])}"

    def path(self, path: str) -> str:
        """Folder by folder: those of the system and of every installation stay, the user's own get stand-ins."""
        backslashes = "\\" in path
        parts = re.split(r"[\\/]", path)
        if self._of_the_system(parts):
            return self._names.sub("(name)", path) if self._names else path
        clean = [self._part(part, parts[:index]) for index, part in enumerate(parts)]
        return ("\\" if backslashes else "/").join(clean)

    def _of_the_system(self, parts: list[str]) -> bool:
        if parts and re.fullmatch(r"[A-Za-z]:", parts[0]):
            return len(parts) > 1 and parts[1].lower() in WINDOWS_ROOTS
        return len(parts) > 1 and parts[0] == "" and SYSTEM_ROOTS.fullmatch(parts[1]) is not None

    def _part(self, part: str, before: list[str]) -> str:
        if not part or re.fullmatch(r"[A-Za-z]:|~|\.{1,2}", part):
            return part
        user_folder = bool(before) and before[-1].lower() in ("home", "users")
        inside_package = any(folder in ("site-packages", "dist-packages") for folder in before)
        if not user_folder and (PUBLIC.fullmatch(part) or inside_package):
            return part
        ending = os.path.splitext(part)[1]
        return self._folders.of(part) + (ending if ending in (".py", ".yaml", ".json", ".toml", ".so", ".dll") else "")


def _address(match: re.Match[str]) -> str:
    # Versions of four numbers (9.14.0.64) look alike; addresses of machines have parts that versions do not reach.
    parts = [int(part) for part in match[0].split(".")]
    network = parts[0] in (10, 127, 169, 172, 192) and max(parts[1:]) > 15
    return "(address)" if network or min(parts[0], max(parts[1:])) > 99 else match[0]
