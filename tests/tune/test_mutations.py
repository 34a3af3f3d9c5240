"""Profiles, records, journals, configurations and pastes, each broken in thousands of ways by a fixed list of chances.

A result or one sentence, soon; never a traceback, never a control character on the screen.
"""

import contextlib
import io
import json
import random
import re
import time
from itertools import pairwise

import pytest
from imagined import Machine, plan, search

from _flatout_agent.wire import PHASES
from flatout.api import config_source
from flatout.base import records
from flatout.base.errors import FlatoutError
from flatout.base.words import Words
from flatout.cli.knob_flags import sentences
from flatout.doctor import after_run, registry, root_cause
from flatout.doctor.paste.reader import read as read_paste
from flatout.knobs import profile_file
from flatout.launch import journals
from flatout.launch.folder import records_of
from flatout.launch.run import Finished
from flatout.launch.settings import Asked, Settings, decide
from flatout.machine import script_look
from flatout.machine.machine_facts import Facts
from flatout.measure.model import Summary
from flatout.measure.one_batch import Look, Training, compare
from flatout.measure.parity import judge
from flatout.measure.summary import summarise
from flatout.report import doctor as doctor_report
from flatout.report import run as run_report
from flatout.report.terminal import show
from flatout.tune.config import changed_values, config_file, known_keys
from flatout.tune.config.wishes import Wish
from flatout.tune.confirmation.kept_loss_curves import NAME as CURVES
from flatout.tune.confirmation.kept_loss_curves import Curves
from flatout.tune.execution.search_journal import About, TuneLine, line_of
from flatout.tune.execution.session import JOURNAL, resumable

LONGEST_S = 2.0
SAMPLE, ALL = 40, 430  # of each of `KINDS`
WORDS = Words("en")
ODD = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**63,
    10**40,
    -0.5,
    1e308,
    "",
    "x",
    "\x1b[2J",
    "\udce9",
    "9" * 5000,
    "nan",
    [],
    {},
    [[]],
    {"a": 1},
]

PROFILE = """kind = "flatout-profile"
version = 1
[knobs]
workers = 8
pin_memory = true
precision = "bf16"
[arguments]
"--batch-size" = "64"
[provenance]
command = ["train.py", "--lr", "0.1"]
date = "2026-01-01T00:00:00"
ratio = 1.5
low = 1.4
high = 1.6
[fingerprint]
script = "abc"
torch = "2.13.0"
driver = "570.1"
card = "CPU"
shapes = ["32x3x224x224"]
"""
SETTINGS = """# where records go
records = "state"
other = [1, 2.5, {a = "b"}]
"""
YAML_TEXT = """# a training
defaults: &base
  batch_size: 32   # a batch
  num_workers: 0
  lr: 1e-3
train:
  <<: *base
  epochs: 10
  use_amp: false
  pin_memory: no
  betas: [0.9, 0.999]
data: {path: /data, prefetch_factor: 2}
"""
JSON_TEXT = json.dumps(
    {"training": {"batch_size": 32, "lr": 0.001, "use_amp": False}, "data": {"num_workers": 0, "names": ["a", "b"]}}, indent=2
)
PASTE = """Collecting environment information...
PyTorch version: 2.4.1+cu121
Is debug build: False
CUDA used to build PyTorch: 12.1
OS: Ubuntu 22.04.3 LTS (x86_64)
Python version: 3.10.12 (main, Nov 20 2023) [GCC 11.4.0] (64-bit runtime)
Is CUDA available: False
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5090
Nvidia driver version: 535.104.05
CUDA_VISIBLE_DEVICES=0,1
export LD_LIBRARY_PATH=/usr/local/cuda-11.8/lib64
| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2     |
[pip3] torch==2.4.1+cu121
[pip3] numpy==1.26.4
RuntimeError: CUDA error: no kernel image is available for execution on the device
NVRM: Xid (PCI:0000:01:00): 79, pid=1234, GPU has fallen off the bus.
"""


# -- chances -----------------------------------------------------------------------------------------------------------


def flipped(data, chance):
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(data))
        data = data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :]
    return data


def cut(data, chance):
    return data[: chance.randrange(len(data))]


def doubled(data, chance):
    begin, end = sorted(chance.randrange(len(data)) for _ in range(2))
    return data[:end] + data[begin:end] * chance.choice([1, 3, 50]) + data[end:]


def without(data, chance):
    begin = chance.randrange(len(data))
    return data[:begin] + data[begin + chance.randint(1, 40) :]


def with_more(data, chance):
    more = [
        b"9" * 5000,
        b"[" * 400,
        b"{" * 400,
        b"[" * 5000,
        b'{"a":' * 400,
        b"\x1b[31m",
        b"\x00",
        b"\xff\xfe",
        b"\xc3\x28",
        b"\r",
        b"\t" * 300,
        b" " * 5000,
        b"\n" * 200,
        b"- " * 400,
        b"a: " * 300,
        b"CUDA_VISIBLE_DEVICES=1," * 300,
        "\u202e".encode(),
        b"1" * 5000,
        b"&a *a",
        b"<<: *base\n",
        b"e999",
        b'"' * 3,
        b"'''",
        b"#",
        b"=",
        b"0x" + b"f" * 5000,
        b"!!python/object:os.system",
        b"\\ud800",
        b"/" * 5000,
        b"." * 5000,
    ]
    place = chance.randrange(len(data))
    return data[:place] + chance.choice(more) + data[place:]


def other_number(data, chance):
    numbers = list(re.finditer(rb"\d+", data))
    if not numbers:
        return flipped(data, chance)
    found = chance.choice(numbers)
    new = chance.choice(
        [b"9" * 5000, b"-1", b"0", b"1e400", b"18446744073709551616", b"nan", b"1.5", b"true", b"null", b'"x"', b"[]", b"{}"]
    )
    return data[: found.start()] + new + data[found.end() :]


def lines_moved(data, chance):
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines[: chance.randint(1, len(lines))])


def other_leaf(data, chance):
    """A value of another type in JSON, of one line or of the whole; deep ones, too."""
    lines = data.splitlines()
    at = chance.randrange(len(lines))
    for text, put in ((data, lambda new: new), (lines[at], lambda new: b"\n".join([*lines[:at], new, *lines[at + 1 :], b""]))):
        try:
            tree = json.loads(text)
        except ValueError:
            continue
        holder, key = chance.choice(list(places(tree)) or [({"": 0}, "")])
        how = chance.random()
        if how < 0.2 and isinstance(holder, dict):
            del holder[key]
        elif how < 0.3:
            holder[key] = nested(chance.choice([50, 400]))
        else:
            holder[key] = chance.choice(ODD)
        return put(json.dumps(tree, separators=(",", ":")).encode())
    return flipped(data, chance)


def places(tree):
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield tree, key
        yield from places(value)


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


WAYS = (flipped, cut, doubled, without, with_more, with_more, other_number, lines_moved, other_leaf, other_leaf, other_leaf)


# -- what is read ------------------------------------------------------------------------------------------------------


def profile(data, folder):
    path = folder / "flatout.toml"
    path.write_bytes(data)
    found = profile_file.read(path)
    ways = (Asked(), Asked(profile=str(path)))
    return "\n".join(sentence for asked in ways for sentence in sentences(decide(asked, path, found, []), WORDS))


def facts(data, folder):
    return judged(records.decode(data, Facts, "facts.json"))


def paste(data, folder):
    return judged(read_paste(data.decode("utf-8", "replace")))


def judged(found):
    told = root_cause.judge(found, registry.all_rules())
    json.dumps(doctor_report.to_json(told))
    return shown(doctor_report.render(told, found, WORDS, True))


def journal(data, folder):
    path = folder / "journal-1.jsonl"
    path.write_bytes(data)
    settings = Settings(values={"workers": "8", "precision": "bf16"}, sources={"workers": "flag", "precision": "profile"})
    ran = Finished(
        run_id="1",
        folder=str(folder),
        command=["python", "t.py"],
        started=0.0,
        wall_s=9.0,
        returncode=0,
        journals=[journals.read_one(path)],
        settings=settings,
        deep=True,
    )
    summary = summarise(ran, MACHINE)
    found = after_run.findings(summary)
    records.encode(summary)
    return shown(run_report.render(summary, found, WORDS, "x"))


def summary(data, folder):
    records.encode(records.decode(data, Summary, "summary.json"))


def search_journal(data, folder):
    (folder / JOURNAL).write_bytes(data)
    resumable(folder, About(command=["t.py"]))


def curves(data, folder):
    """And what is made of those that are found."""
    (folder / CURVES).write_bytes(data)
    kept = Curves(folder, ["t.py"])
    found = [kept.find({}, 60, seed) for seed in range(4)]
    pairs = [(one, other) for one, other in pairwise(found) if one is not None and other is not None]
    judge([(one.losses, other.losses) for one, other in pairs])
    compare(pairs)


def settings(data, folder):
    (folder / "flatout").mkdir(exist_ok=True)
    (folder / "flatout" / "settings.toml").write_bytes(data)
    here = folder / "here"
    here.mkdir(exist_ok=True)
    records_of(here, {"XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder)}).is_dir()


def configuration(data, folder):
    path = folder / ("a.json" if data.lstrip()[:1] == b"{" else "a.yaml")
    path.write_bytes(data)
    script_look.look(path)
    with contextlib.suppress(FlatoutError):
        config_source.read(path)
    rewritten(path)


def rewritten(path):
    found = config_file.read(path)
    config_file.as_the_script_reads(found, found.tree)
    own = known_keys.own_keys(found, {})
    wishes = [
        Wish(key=key, value=value, code="x") for key, value in (("num_workers", 4), ("batch_size", 64), ("use_amp", True))
    ]
    applied = changed_values.apply(found, wishes, own, changed_values.insertable(found.json))
    config_file.parsed(path, applied.text)


def shown(renderable):
    stream = io.StringIO()
    show(stream, renderable)
    return stream.getvalue()


# -- what they read when it is whole -----------------------------------------------------------------------------------


MACHINE = None


@pytest.fixture(scope="module", autouse=True)
def _machine():
    global MACHINE
    from flatout.launch import interpreter
    from flatout.machine import facts as machine_facts

    MACHINE = machine_facts.machine(interpreter.describe("python"))


def whole(kind, folder):
    if kind is journal:
        return journal_text()
    if kind is summary:
        path = folder / "journal-1.jsonl"
        path.write_bytes(journal_text())
        ran = Finished(
            run_id="1", folder="x", command=["t.py"], started=0.0, wall_s=9.0, returncode=0, journals=[journals.read_one(path)]
        )
        return records.encode(summarise(ran, MACHINE))
    if kind is search_journal:
        wanted = plan(budget_s=60.0)
        _, segments, results = search(Machine(launch=9, device=8), wanted)
        lines = [line_of(TuneLine(about=About(command=["t.py"]), plan=wanted))]
        lines += [line_of(TuneLine(segment=s, result=r)) for s, r in zip(segments[:12], results[:12], strict=False)]
        return "".join(lines).encode()
    if kind is curves:
        kept = Curves(folder, ["t.py"])
        for seed in range(4):
            look = Look(begun=3, ended=4, norms=[1.0, None, 0.5], sample=[[0.5, -0.5], [], [1.0]])
            kept.keep({}, 60, seed, Training(losses=[2.0 - step / 50 for step in range(60)], begun=3, looks=[look, None]))
        return (folder / CURVES).read_bytes()
    texts = {settings: SETTINGS, profile: PROFILE, configuration: YAML_TEXT, configuration_json: JSON_TEXT, paste: PASTE}
    return texts[kind].encode() if kind in texts else records.encode(read_paste(PASTE))


def configuration_json(data, folder):
    configuration(data, folder)


def journal_text():
    window = {
        "kind": "window",
        "t": 1,
        "steps": 20,
        "samples": 80,
        "batches": 20,
        "backwards": 20,
        "phases": [10**8] * len(PHASES),
        "copy_sampled": [1, 2],
        "warm": {"samples": 12, "phases": [10**7] * len(PHASES)},
        "script_outside": 5,
        "put_on": 6,
        "turns": 1,
        "loaders": [
            {
                "site": "t.py:3",
                "workers": 0,
                "batch_size": 4,
                "pin_memory": False,
                "persistent_workers": False,
                "wait": 10**8,
                "batches": 20,
            }
        ],
        "memory": {"allocated": 1, "peak": 2, "reserved": 3, "total": 4},
        "memory_trend": [[1, 2], [3, 4]],
        "lag": {"p50": 1, "samples": 2},
        "reads": [{"site": "t.py:9", "count": 3, "wait": 4}],
        "cores": {"busy": 1.0},
        "regime": {"precision": "fp32"},
        "losses": [[1, 0.5]],
    }
    details = {"code": "capped", "status": "applied", "details": {"asked": 8, "limit": "cores"}}
    lines = [
        {
            "kind": "process",
            "wire": 1,
            "pid": 1,
            "python": "3.11.7",
            "rank": None,
            "torch": {"version": "2.13.0", "cuda": None, "hip": None, "import_s": 1.5},
        },
        {
            "kind": "knobs",
            "step": 0,
            "outcomes": {"workers": details, "precision": {"status": "refused", "code": "x"}},
            "numerics": {"workers": "exact"},
        },
        {"kind": "proofs", "proofs": {"workers": details}, "at_the_end": False},
        {"kind": "taken-back", "knobs": ["precision"], "code": "slower", "details": {"ratio": 0.5}},
        window,
        {
            "kind": "oom",
            "message": "CUDA out of memory",
            "memory": window["memory"],
            "holders": [{"what": "parameters", "bytes": 5}],
        },
        {"kind": "devices", "message": "two devices", "site": "t.py:1", "tensors": [{"name": "x", "device": "cpu"}]},
        {"kind": "deep", "part": "kernels", "kernels": [{"name": "k", "ns": 5}], "steps": 3},
        {"kind": "fault", "where": "x", "text": "y"},
        {"kind": "end", "ended": 1.0},
    ]
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


KINDS = (profile, settings, facts, summary, journal, search_journal, curves, configuration, configuration_json, paste)


def broken(kind, data, folder):
    """What went wrong, where anything did."""
    began = time.perf_counter()
    try:
        text = kind(data, folder)
    except FlatoutError as error:
        text = WORDS(error.key, **error.params)
    except Exception as error:  # noqa: BLE001 - that there is none is what is tested
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:80]} at {where.filename.rpartition('/')[2]}:{where.lineno}"
    took = time.perf_counter() - began
    if text is not None and re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text):
        return "control characters are shown"
    return f"{took:.1f} s" if took > LONGEST_S else None


def all_broken(kind, count, folder):
    chance = random.Random(kind.__name__)
    data = whole(kind, folder)
    kind(data, folder)  # whole, it is read
    found = {}
    for number in range(count):
        mutation = data
        for _ in range(chance.choice([1, 1, 2])):
            mutation = chance.choice(WAYS)(mutation, chance) or b"\n1\n"
        fault = broken(kind, mutation, folder)
        if fault is not None:
            found.setdefault(fault, (number, mutation[:200]))
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_sample_of_mutations(kind, tmp_path):
    assert not all_broken(kind, SAMPLE, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_all_mutations(kind, tmp_path):
    assert not all_broken(kind, ALL, tmp_path)
