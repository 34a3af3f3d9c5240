"""Operating system, WSL, container and Python."""

from __future__ import annotations

import re

from flatout.doctor.paste.clean import Text
from flatout.doctor.paste.draft import Draft, Rank

_DISTRIBUTIONS = (
    r"ubuntu|debian|fedora|centos|red hat|rhel|rocky|almalinux|arch linux|manjaro|endeavouros|gentoo|opensuse|suse"
    r"|pop!?_os|linux mint|mint|nixos|kali|amazon linux|oracle linux|alpine|void linux"
)
_DISTRIBUTION = re.compile(
    rf"\b(?:{_DISTRIBUTIONS})\b(?:[ -](?:gnu/linux|linux|server|stream|leap"
    rf"|tumbleweed))?(?:[ -]v?\d[\w.]*(?: lts)?)?(?! ?container)",
    re.I,
)
_WINDOWS = re.compile(
    r"\b(?:microsoft )?windows(?: (?:server )?(11|10|8\.1|8|7|2019|2022|2025|2016))?\b|\bwin ?(10|11)\b|\bwin32\b|视窗", re.I
)
_WINDOWS_PATH = re.compile(
    r"\b[A-Za-z]:\\(?:Users|Windows|Program|ProgramData|[A-Za-z_][\w .-]{1,40}\\)"
    r"|\.venv\\|\\Scripts\\|\\site-packages\\|\bpowershell\b",
    re.I,
)
_MAC = re.compile(r"\bmac ?os(?: x)?\b|\bdarwin\b|\bapple (?:m[1-5]|silicon)\b|\bmacbook\b", re.I)
_KERNEL = re.compile(r"\b(?:Linux-|Linux version |Linux \S+ |kernel:? (?:linux )?(?:version )?)(\d\.\d{1,2}[\w.+-]*)", re.I)
_WSL = re.compile(r"\bwsl ?-?[12]?\b|microsoft-standard|/usr/lib/wsl|\b/mnt/[c-f]/|windows subsystem for linux", re.I)
_NOT_WSL = re.compile(
    r"(?:works?|fine|ok|instead|switch\w*|try|use|using|recommend\w*)[^\n]{0,20}\b(?:in|on|under|to|with)? ?wsl|(?:not"
    r"|without|no|non-) ?wsl|wsl[^\n]{0,12}(?:works|is fine)",
    re.I,
)
_CONTAINERS = (
    ("kubernetes", re.compile(r"\bkubernetes\b|\bk8s\b|\bkubectl\b|\bcontainerd\b[^\n]{0,30}\bpod\b", re.I)),
    ("podman", re.compile(r"\bpodman\b", re.I)),
    ("lxc", re.compile(r"\blxc\b|\bincus\b", re.I)),
    ("other", re.compile(r"\b(?:singularity|apptainer|enroot)\b", re.I)),
    ("docker", re.compile(r"\bdocker\b|\bnvcr\.io\b|\.dockerenv|\bcontainers?\b(?! toolkit)|容器", re.I)),
)
_PYTHON = (
    re.compile(r"\bPython[ -](3\.\d{1,2}(?:\.\d{1,2})?)\b(?![ \w]{0,12}(?:or|and) (?:newer|later|above))"),
    re.compile(r"\bpython(3\.\d{1,2})[/\\]site-packages", re.I),
    re.compile(r"\bpython ?(?:=|==|version|v|is|:)? ?(3\.\d{1,2}(?:\.\d{1,2})?)\b", re.I),
    re.compile(r"\bPython(3)(\d{1,2})\\", re.I),
)
_TAG = re.compile(r"-cp3(\d{1,2})-(?:cp|abi|none)")
_BITS = re.compile(r"\b(32|64)[ -]?bit(?: runtime)?\b|(32|64) ?位", re.I)
_PATH = re.compile(r"((?:[A-Za-z]:\\|/)[^\s\"'<>|:*?]{2,160}[\\/](?:python(?:3(?:\.\d+)?)?(?:\.exe)?))(?=[\s\"',:;)\]]|$)")
_SITE = re.compile(r"((?:[A-Za-z]:\\|/|\.\.\.|~/|~\\)[^\"'<>|*?\n]{0,200}?site-packages)[\\/](\w+)")


def read(text: Text, draft: Draft) -> None:
    _system(text, draft)
    _container(text, draft)
    _python(text, draft)


# -- fields --------------------------------------------------------------------------------------------------------


def os_field(draft: Draft, value: str, rank: Rank) -> None:
    if value.lower().startswith(("could not", "n/a", "none")) or not value:
        return
    wsl = _WSL.search(value)
    if wsl:
        draft.put("system.wsl", True, rank)
        draft.put("system.name", "Linux", rank)
    windows = _WINDOWS.search(value)
    if windows:
        draft.put("system.name", "Windows", rank)
        release = windows[1] or windows[2]
        if release and not wsl:
            draft.put("system.release", release, rank)
    elif _MAC.search(value):
        draft.put("system.name", "Darwin", rank)
    distribution = _DISTRIBUTION.search(value)
    if distribution:
        draft.put("system.name", "Linux", rank)
        draft.put("system.distribution", _tidy(value, distribution), rank)
    elif re.match(r"linux\b", value, re.I):
        draft.put("system.name", "Linux", rank)
    kernel = re.search(r"kernel:? (\d\.\d{1,2}[\w.+-]*)", value, re.I)
    if kernel:
        draft.put("system.release", kernel[1], rank)
    architecture = re.search(r"\b(x86_64|aarch64|AMD64|arm64)\b", value)
    if architecture:
        draft.put("system.architecture", architecture[1], rank)


def _tidy(value: str, found: re.Match[str]) -> str:
    whole = re.sub(r"\s*\((?:x86_64|aarch64)\)|,.*|\bWSL ?[12]?\b", "", value).strip()
    return whole if len(whole) < 60 and "/ " not in whole else found.group().strip()


def kernel_field(draft: Draft, value: str, rank: Rank) -> None:
    match = re.match(r"(?:Linux )?(\d\.\d{1,2}[\w.+-]*)", value)
    if match:
        draft.put("system.release", match[1], rank)
        draft.put("system.name", "Linux", rank)


def python_field(draft: Draft, value: str, rank: Rank) -> None:
    match = re.search(r"\b([23]\.\d{1,2}(?:\.\d{1,2})?)", value)
    if match:
        draft.put("python.version", match[1], rank)
    bits = re.search(r"\((32|64)-bit runtime\)|\b(32|64)[ -]?bit", value)
    if bits:
        draft.put("python.bits", int(bits[1] or bits[2]), rank)
    if "conda" in value.lower():
        draft.put("python.environment", "conda", rank)
    if "MSC v." in value:
        draft.put("system.name", "Windows", rank)


def platform_field(draft: Draft, value: str, rank: Rank) -> None:
    kernel = _KERNEL.match(value)
    if value.startswith("Windows"):
        draft.put("system.name", "Windows", rank)
        draft.put("system.release", value.split("-")[1] if "-" in value else "unknown", Rank.SAID)
    elif kernel:
        draft.put("system.name", "Linux", rank)
        draft.put("system.release", re.sub(r"-(?:x86_64|aarch64)-with.*", "", kernel[1]), rank)
    elif value.lower().startswith(("macos", "darwin")):
        draft.put("system.name", "Darwin", rank)
    if "microsoft" in value.lower():
        draft.put("system.wsl", True, rank)


def container_field(draft: Draft, value: str, rank: Rank) -> None:
    if value.lower() in ("false", "none", "no", "null", ""):
        return
    draft.put("system.container", "docker" if re.match(r"true|yes|docker|\d", value, re.I) else "other", rank)


# -- anywhere ------------------------------------------------------------------------------------------------------


def _system(text: Text, draft: Draft) -> None:
    flat = text.flat
    if _WSL.search(flat) and not _NOT_WSL.search(flat):
        draft.put("system.wsl", True, Rank.PROSE)
        draft.put("system.name", "Linux", Rank.SAID)
    pretty = re.search(r'PRETTY_NAME="([^"\n]{3,60})"', flat)
    distribution = _DISTRIBUTION.search(pretty[1] if pretty else flat)
    windows = _WINDOWS.search(flat)
    if (
        _WINDOWS_PATH.search(flat)
        or re.search(r"\bon win32\b|\[MSC v\.|WinError", flat)
        or (windows and not (distribution and distribution.start() < windows.start()))
    ):
        draft.put("system.name", "Windows", Rank.PROSE)
    elif distribution:
        draft.put("system.name", "Linux", Rank.PROSE)
    elif _MAC.search(flat):
        draft.put("system.name", "Darwin", Rank.PROSE)
    elif re.search(r"\blinux\b|\bsudo \w|/lib/modules/|x86_64-linux-gnu|\bsystemctl\b|\blsmod\b|\bdmesg\b", flat, re.I):
        draft.put("system.name", "Linux", Rank.PROSE)
    if draft.facts.system.name == "Linux" and distribution:
        draft.put("system.distribution", pretty[1] if pretty else distribution.group(), Rank.PROSE)
    if windows and draft.facts.system.name == "Windows" and (windows[1] or windows[2]):
        draft.put("system.release", windows[1] or windows[2], Rank.PROSE)
    kernel = _KERNEL.search(flat)
    if kernel and draft.facts.system.name != "Windows":
        draft.put("system.release", kernel[1], Rank.PROSE)
        draft.put("system.name", "Linux", Rank.PROSE)


def _container(text: Text, draft: Draft) -> None:
    for name, pattern in _CONTAINERS:
        match = pattern.search(text.flat)
        if match and not re.search(
            r"(?:not (?:in|inside|using|a)|outside|without|no)(?: (?:a|an|the|any|of))* $",
            text.flat[max(0, match.start() - 20) : match.start()],
            re.I,
        ):
            draft.put("system.container", name, Rank.PROSE)
            return


def _python(text: Text, draft: Draft) -> None:
    flat = text.flat
    for rank, pattern in zip((Rank.SAID, Rank.SAID, Rank.PROSE, Rank.PROSE), _PYTHON, strict=True):
        match = pattern.search(flat)
        if match:
            draft.put("python.version", ".".join(match.groups()), rank)
    tag = _TAG.search(flat)
    if tag and not re.search(r"not a supported wheel", text.lower):
        draft.put("python.version", f"3.{tag[1]}", Rank.GUESSED)
    bits = re.search(
        r"(?:python|解释器)[^\n]{0,60}?\b(32|64)[ -]?(?:bit|位)|\b(32|64)[ -]bit(?: version of)? python|(32)-bit\b"
        r"|\[MSC[^\]\n]{0,20} (32|64) bit",
        flat,
        re.I,
    )
    if bits:
        draft.put("python.bits", int(next(group for group in bits.groups() if group)), Rank.SAID)
    path = _PATH.search(flat)
    if path:
        draft.put("python.path", path[1], Rank.SAID)
    _environment(flat, draft)


def _environment(flat: str, draft: Draft) -> None:
    site = _SITE.search(flat)
    torch = next((match for match in _SITE.finditer(flat) if match[2] == "torch"), None)
    if torch:
        draft.put("torch.path", f"{torch[1]}/torch", Rank.SAID)
    where = (torch or site)[1] if (torch or site) else ""  # type: ignore[index]
    if re.search(r"conda|[\\/]envs[\\/]|mambaforge", where, re.I):
        draft.put("python.environment", "conda", Rank.SAID)
    elif re.search(r"[\\/]\.?v?env[\\/]", where, re.I):
        draft.put("python.environment", "venv", Rank.SAID)
