"""Becomes one training script after another, each in a fork with torch already imported: a second instead of six.

A request is a line of JSON on standard input: the folder to work in, the command's words, the environment, whether the
agent is wanted. The answer is the exit status. What the script and the agent leave behind in the process is written to
`trace.json` at its very end, after everything that they do at exit: torch's global flags once the knobs are off, and
whether a model that wears knobs was pickled without a word of us.
"""

import atexit
import contextlib
import gc
import json
import os
import pickle
import runpy
import signal
import sys
from pathlib import Path

DEADLINE = 150  # seconds, of a training that takes two

ending = {"pid": os.getpid(), "code": 0, "trace": ""}


@atexit.register  # before all others, so that it runs after them
def leave_at_once():
    if os.getpid() == ending["pid"]:
        with contextlib.suppress(ValueError):  # a script may have closed them
            sys.stdout.flush()
            sys.stderr.flush()
        if ending["trace"]:
            write_trace()
        os._exit(ending["code"])


import torch
import torch.nn.modules.module as modules

with contextlib.suppress(RuntimeError):  # torch 2.0 cannot on Python 3.11
    torch.compile(torch.nn.Linear(1, 1), backend="eager")  # compiles nothing yet, and imports what that takes

drivers = []
held = []  # the roots: a script's `main` has dropped them when we look
pickles = {"bare": [], "dressed": []}  # before the knobs and after, while the script's classes can be found by name


def flags():
    """What a script, or a knob, may set for the whole process."""
    import torch._dynamo.config as dynamo

    backends = torch.backends
    return {
        "threads": torch.get_num_threads(),
        "matmul": torch.get_float32_matmul_precision(),
        "cudnn": [backends.cudnn.benchmark, backends.cudnn.deterministic, backends.cudnn.allow_tf32],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "dtype": str(torch.get_default_dtype()),
        "autocast": [torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")],
        "gradients": torch.is_grad_enabled(),
        "garbage": [gc.isenabled(), list(gc.get_threshold()), gc.get_freeze_count()],
        "limits": {name: getattr(dynamo, name, None) for name in ("recompile_limit", "cache_size_limit")},
        "hooks": [len(modules._global_forward_hooks), len(modules._global_forward_pre_hooks)],
        "allocator": [os.environ.get(name) for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")],
    }


def pickled(model):
    """How many bytes, or why not; and whether we are in them."""
    try:
        data = pickle.dumps(model)
    except (TypeError, AttributeError, RuntimeError, pickle.PicklingError) as error:
        return type(error).__name__
    return "flatout" if b"flatout" in data else "clean"


def write_trace():
    trace = dict(pickles)
    try:
        for driver in drivers:
            driver.give_up()  # as after a fault: the knobs off, and the look for the models ended
        trace["classes"] = [type(root) is root.__class__ for root in held]
        trace["flags"] = flags()
    except Exception as error:  # noqa: BLE001
        trace["failed"] = f"{type(error).__name__}: {error}"
    Path(ending["trace"]).write_text(json.dumps(trace), encoding="utf-8")


def serve():
    """The request that this process is to become; ends with the last one."""
    gc.collect()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            return json.loads(line)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit(0)


def become(wanted):
    signal.alarm(DEADLINE)
    os.chdir(wanted["folder"])
    out, err = wanted["streams"]
    for descriptor, path, how in (
        (0, os.devnull, os.O_RDONLY),
        (1, out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        os.dup2(os.open(path, how, 0o644), descriptor)
    os.environ.clear()
    os.environ.update(wanted["environ"])
    ending.update(pid=os.getpid(), trace=wanted["trace"])
    if wanted["agent"] and wanted["tape"]:
        tape_graphs()
    if wanted["agent"]:
        begin_agent(wanted["backend"], wanted["pickle"])


def tape_graphs():
    """What would be CUDA graphs are tapes: there is no card here."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "apply"))
    from taped import RecordedHere

    del sys.path[0], sys.modules["taped"]  # else it counts as a module of the script's own
    sys.modules["_flatout_agent.knobs.compile"].Recorded = RecordedHere


def begin_agent(backend, pickling):
    from _flatout_agent import start
    from _flatout_agent.knobs.compile import Compile
    from _flatout_agent.modes import driver as drive
    from _flatout_agent.modes import profile_mode

    if backend:
        Compile.backend = backend  # Dynamo and autograd without the minutes of a compiler
    made, put_on = drive.Driver.__init__, profile_mode.ProfileCourse._put_on

    def noted(self, *args, **kwargs):
        made(self, *args, **kwargs)
        drivers.append(self)

    def _put_on(self, driver):
        held.extend(driver.scene.roots)
        roots = driver.scene.roots if pickling else []
        pickles["bare"] += map(pickled, roots)  # what cannot be pickled without us cannot with us
        put_on(self, driver)
        pickles["dressed"] += map(pickled, roots)

    drive.Driver.__init__, profile_mode.ProfileCourse._put_on = noted, _put_on
    start.begin()


def run(words):
    if words[0] == "-m":
        sys.path.insert(0, os.getcwd())
        sys.path[1:1] = [path for path in os.environ["STYLE_PATH"].split(os.pathsep) if path]
        sys.argv = ["-m", *words[2:]]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(words[0]).parent))
        sys.argv = list(words)
        runpy.run_path(words[0], run_name="__main__")


wanted = serve()
become(wanted)
try:
    run(wanted["words"])
except SystemExit as end:
    ending["code"] = end.code if isinstance(end.code, int) else int(end.code is not None)
    raise
except BaseException:
    ending["code"] = 1
    raise
