"""Every knob on every style of training script: `python tests/knobs/style_matrix.py [-k STYLE] [--skip STYLE] [--group NAME]`.

Each style of `tests/run/styles` is run plain and then once for each group of knobs. Of every knob either its effect was
seen, or a reason is stated. Where all that was put on counts as `exact`, what the script prints and writes must be the same
byte for byte; else its files must be built the same. Nothing may be left behind: no flag, no word of us in a pickle.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import zip_longest
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUN = HERE.parent / "run"
ROOT = HERE.parents[1]
sys.path[:0] = [str(RUN), str(HERE.parent)]

import torch
from forks import Forks
from test_styles import CASES, STYLES, words

from _flatout_agent import wire
from flatout.base.words import Words
from flatout.knobs.model import Came
from flatout.launch import environment, journals
from flatout.launch.settings import FLAG, Settings
from flatout.measure import knob_use

del sys.path[:2]

# Knobs that can be on together without hiding each other; a bare machine refuses those for a card, with the reason.
GROUPS = {
    "card": {
        "tf32": "on",
        "cudnn_benchmark": "on",
        "allocator": "expandable",
        "pin_memory": "on",
        "non_blocking": "on",
        "device_prefetch": "on",
        "deferred_item": "on",
        "gc_policy": "on",
    },
    "blocks": {"checkpointing": "on"},
    "loader": {"workers": "1", "prefetch_factor": "3", "persistent_workers": "on"},
    "layout": {"channels_last": "on", "fused_optimizer": "on", "cpu_threads": "2"},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "compile": {"compile": "default"},
    "graphs": {"compile": "reduce-overhead"},
    "recorded": {"compile": "graphs"},  # on a tape where there is no card
}
GROUPS["all"] = {**GROUPS["card"], **GROUPS["loader"], **GROUPS["layout"], "precision": "bf16", "compile": "default"}

# Processes of their own, or libraries that must be imported after the agent: no fork can stand for them.
WHOLE = ("torchrun", "distributed-launch", "lightning", "transformers", "accelerate", "accelerate-launch")

LONGEST_S = 600  # of one training, on a machine that has other work

# What a script may see without anything being wrong: one counts torch's own calls, and a second iterator makes one more; one
# prints the frames that its profiler saw, and the name of the loader's iterator.
SEES_MORE = {
    ("patches-torch-itself", "loader"),
    ("patches-torch-itself", "all"),
    ("torch-profiler", "loader"),
    ("torch-profiler", "recorded"),
}

UNPROVED = knob_use.TOO_EARLY | {""}  # the run was over before there was anything to see


class Ran:
    """What one run left: its exit status, its output, its files, its account of the knobs."""

    def __init__(self, code, place, run_dir, knobs):
        self.code = code
        self.taped = knobs.get("compile") == "graphs"  # whatever a card's kernels do: the same operations are run again
        self.stdout = (place / "stdout").read_bytes()
        self.stderr = (place / "stderr").read_text(errors="replace")
        work = place / "work"
        self.files = {str(path.relative_to(work)): path.read_bytes() for path in work.rglob("*") if path.is_file()}
        trace = place / "trace.json"
        self.trace = json.loads(trace.read_text()) if trace.exists() else {}
        self.lines = journals.read(run_dir) if run_dir is not None else []
        settings = Settings(values=knobs, sources=dict.fromkeys(knobs, FLAG))
        self.uses = knob_use.uses(settings, self.lines) if knobs else []


def run(forks, name, place, knobs=None, backend="aot_eager"):
    """One style in a folder of its own; `knobs` None: plain."""
    style, run_dir = CASES[name], None
    for part in ("work", "run"):
        (place / part).mkdir(parents=True)
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "STYLE_PATH": str(STYLES)}
    environ["PYTHONPATH"] = str(STYLES)
    if knobs is not None:
        run_dir, job = place / "run", place / "job.json"
        asked = {**wire.new_job(str(run_dir), time.time(), knobs=knobs), "knobs_check": False}
        job.write_text(json.dumps(asked))
        environ = environment.injected(environ, job)
    if name in WHOLE:
        code = run_whole([sys.executable, *words(style)], place, environ)
    else:
        request = {
            "folder": str(place / "work"),
            "words": words(style),
            "environ": environ,
            "agent": knobs is not None,
            "backend": backend,
            "tape": (knobs or {}).get("compile") == "graphs",
            "pickle": name != "patches-torch-itself",  # it counts the calls of torch.save
            "streams": [str(place / "stdout"), str(place / "stderr")],
            "trace": str(place / "trace.json"),
        }
        code = forks.run(request)
    return Ran(code, place, run_dir, knobs or {})


def run_whole(command, place, environ):
    with (place / "stdout").open("wb") as out, (place / "stderr").open("wb") as err:
        try:
            ended = subprocess.run(
                command, cwd=place / "work", env=environ, stdout=out, stderr=err, timeout=LONGEST_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"none within {LONGEST_S} s"
    return ended.returncode


def structure(thing):
    """What a checkpoint is made of, without its values."""
    if isinstance(thing, torch.Tensor):
        return (tuple(thing.shape), str(thing.dtype), str(thing.device))
    if isinstance(thing, dict):
        return {key: structure(part) for key, part in thing.items()}
    if isinstance(thing, list | tuple):
        return [structure(part) for part in thing]
    return type(thing).__name__ if isinstance(thing, float) else thing


def built(path, data):
    """Of a checkpoint its structure; of anything else only that it is there."""
    if not path.endswith((".pt", ".pth", ".bin")):
        return None
    import io

    try:
        return structure(torch.load(io.BytesIO(data), weights_only=True))
    except (RuntimeError, ValueError, pickle.UnpicklingError) as error:
        return type(error).__name__


def wrongs(plain, ours, sentences):
    """What is not as it must be, one short text each."""
    found = []
    if ours.code != plain.code:
        found.append(f"exit status {ours.code}, plain {plain.code}: {ours.stderr[-600:]}")
    faults = [line for journal in ours.lines for line in journal if line["kind"] == "fault"]
    found += [f"fault in {line['where']}: {line['text']}" for line in faults]
    for use in ours.uses:
        if use.came is Came.REFUSED and use.code in ("fault", "raised", "fetching-failed", "unknown-knob", ""):
            found.append(f"{use.name}: {use.code} {use.details}")
        if use.came in (Came.REFUSED, Came.ALREADY) and not sentences.has(f"outcome.{use.code}"):
            found.append(f"{use.name}: no sentence for {use.code}")
        if use.came is Came.UNPROVED and use.code not in UNPROVED:
            found.append(f"{use.name}: put on, and never seen: {use.code}")
    same_bits = is_exact(ours) or ours.taped
    return found + (different_bytes(plain, ours) if same_bits else different_build(plain, ours)) + traces(plain, ours)


def is_exact(ours):
    """Whether all that was ever on counts as exact: what took itself off again had its effect until then."""
    lines = [line for journal in ours.lines for line in journal if line["kind"] == "knobs"]
    on = [(name, line) for line in lines for name, outcome in line["outcomes"].items() if outcome["status"] == "applied"]
    return all(line["numerics"].get(name) == "exact" for name, line in on)


def different_bytes(plain, ours):
    differing = [line for line in zip_longest(ours.stdout.splitlines(), plain.stdout.splitlines()) if line[0] != line[1]]
    found = [f"it prints otherwise: {ours!r} / {plain!r}" for ours, plain in differing[:3]]
    names = sorted(name for name in {*ours.files, *plain.files} if ours.files.get(name) != plain.files.get(name))
    return found + [f"other bytes in {name}" for name in names]


def different_build(plain, ours):
    if ours.files.keys() != plain.files.keys():
        return [f"other files: {sorted(ours.files.keys() ^ plain.files.keys())}"]
    return [
        f"{name} is built otherwise" for name in plain.files if built(name, ours.files[name]) != built(name, plain.files[name])
    ]


def traces(plain, ours):
    found = [f"flatout's name in {name}" for name, data in ours.files.items() if b"flatout" in data]
    trace = ours.trace
    if not trace:
        return found
    if "failed" in trace:
        found.append(f"the look at the end failed: {trace['failed']}")
    if trace.get("flags") != plain.trace.get("flags"):
        found.append(f"flags left: {trace.get('flags')} / {plain.trace.get('flags')}")
    dressed, bare = trace.get("dressed"), trace.get("bare")
    if "flatout" in dressed or dressed != bare:
        found.append(f"pickles: {dressed}, without knobs {bare}")
    if not all(trace.get("classes", [])):
        found.append("a model still wears its knobs")
    return found


def whole(names, groups, folder, tell=print):
    """All of it; a list of cells, each with what came of its knobs and what is wrong."""
    cells, sentences = [], Words("en")
    with Forks() as forks:
        for name in names:
            began = time.perf_counter()
            plain = run(forks, name, folder / name / "plain")
            for group in groups:
                ours = run(forks, name, folder / name / group, GROUPS[group])
                if (name, group) in SEES_MORE:
                    ours.stdout = plain.stdout
                wrong = wrongs(plain, ours, sentences)
                came = {use.name: [use.came.value, use.code, use.numerics] for use in ours.uses}
                cells.append(
                    {"style": name, "group": group, "exact": is_exact(ours) or ours.taped, "came": came, "wrong": wrong}
                )
                for text in wrong:
                    tell(f"  {name} x {group}: {text}")
            tell(f"{name}: {len(groups)} groups in {time.perf_counter() - began:.1f} s")
    return cells


def counted(cells):
    uses = [use for cell in cells for use in cell["came"].values()]
    return {
        "styles": len({cell["style"] for cell in cells}),
        "runs": len(cells),
        "knob uses": len(uses),
        **Counter(came for came, _, _ in uses),
        "bit-identical runs": sum(cell["exact"] and not cell["wrong"] for cell in cells),
        "runs with something wrong": sum(bool(cell["wrong"]) for cell in cells),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", help="only styles whose name holds this")
    parser.add_argument("--skip", action="append", default=[], help="not those whose name holds this")
    parser.add_argument("--group", action="append", choices=list(GROUPS), help="only these groups of knobs")
    parser.add_argument("--out", type=Path, help="write every cell to this file")
    asked = parser.parse_args()
    names = [name for name in CASES if asked.k in name and not any(part in name for part in asked.skip)]
    with tempfile.TemporaryDirectory() as folder:
        cells = whole(names, asked.group or list(GROUPS), Path(folder), lambda text: print(text, flush=True))
    if asked.out:
        asked.out.write_text(json.dumps(cells, indent=1))
    for name, count in counted(cells).items():
        print(f"{name}: {count}")
    sys.exit(any(cell["wrong"] for cell in cells))


if __name__ == "__main__":
    main()
