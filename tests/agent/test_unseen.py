"""What a script might notice of the observers, with all of them on: each case once cost somebody a training."""

import inspect
import pickle
import re
import sys
import threading
import traceback
import typing
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from _flatout_agent.core.patches import Patches
from _flatout_agent.start import install
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.hooks import device_copies
from _flatout_agent.timeline.step_clock import StepClock
from conftest import torch_version


class Observed:
    def __init__(self):
        self.tape, self.patches = Tape(StepClock(0), lambda now: None), Patches()
        self.tensors = install(torch, self.tape, self.patches)
        self.net = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def train(self, batches):
        for x in batches:
            self.tape.sampling = True
            self.net(x).sum().backward()
            self.optimizer.step()


@pytest.fixture(params=["awake", "at rest"])
def observed(request, monkeypatch):
    """As on a machine with a device: with the observers on tensors, or lifted from them after a while of training."""
    monkeypatch.setattr(device_copies, "device_at_hand", lambda torch: True)
    made = Observed()
    if request.param == "at rest":
        made.train(torch.ones(4, 2, 3))
        made.tensors.rest()
    yield made
    made.patches.take_off()


class Few(torch.Tensor):
    """Knows three functions, and refuses whatever else it is asked."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in KNOWN:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))
        raise NotImplementedError(function)


KNOWN = {torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.cpu, torch.Tensor.to}  # made before anybody observes


def test_a_class_that_knows_only_some_functions(observed):
    few = torch.ones(1).as_subclass(Few)
    assert few.item() == 1.0
    assert few.tolist() == [1.0]
    few.cpu()
    few.to(torch.float64)
    with pytest.raises(NotImplementedError):
        few.is_cpu  # noqa: B018


def test_a_table_of_methods_is_found_whenever_it_was_made(observed):
    """Before the observers, while they were on, and after: looked up from each."""
    tables = {"before": KNOWN, "on": {torch.Tensor.item}}
    methods = [torch.Tensor.item]
    observed.tensors.rest()
    tables["off"] = {torch.Tensor.item}
    methods.append(torch.Tensor.item)
    observed.tensors.wake()
    methods.append(torch.Tensor.item)
    assert all(method in table for method in methods for table in tables.values())
    assert len({pickle.dumps(method) for method in methods}) == 1


class Heard(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(torch.overrides.resolve_name(function) or str(function))
        return function(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def work(net, optimizer):
    for (x,) in DataLoader(TensorDataset(torch.ones(8, 3)), batch_size=4):
        loss = net(x.to(torch.float32)).sum()
        loss.backward()
        optimizer.step()
        loss.item()
        loss.cpu().tolist()


def heard(mode):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with mode:
        work(net, optimizer)
    return mode.names


@pytest.mark.parametrize("mode", [Heard, Dispatched])
def test_modes_hear_nothing_of_ours(mode, observed):
    observed.tape.sampling = True
    during = heard(mode())
    observed.patches.take_off()
    assert during == heard(mode())


def profiled(observed):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        if observed is not None:
            observed.tape.sampling = True
        work(torch.nn.Linear(3, 1), torch.optim.SGD(torch.nn.Linear(3, 1).parameters(), lr=0.1))
    return sorted((event.key, event.count) for event in profiler.key_averages())


def test_the_profiler_counts_nothing_of_ours(observed):
    profiled(observed)
    during = profiled(observed)
    observed.patches.take_off()
    assert during == profiled(None)


def test_a_counter_of_flops_counts_nothing_of_ours(observed):
    flop_counter = pytest.importorskip("torch.utils.flop_counter")

    def counted():
        net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
        with flop_counter.FlopCounterMode(display=False) as counter:
            work(net, torch.optim.SGD(net.parameters(), lr=0.1))
        return counter.get_flop_counts()

    observed.tape.sampling = True
    during = counted()
    observed.patches.take_off()
    assert during == counted()


def test_losses_are_still_seen(observed):
    for kind in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        observed.tape.look._losses._series.points.clear()
        observed.tape.look._losses._series._seen = 0
        observed.tape.look._losses.sample(3, torch.tensor(2.5, dtype=kind))
        assert observed.tape.look._losses._series.points == [[3, 2.5]]


def test_a_hook_of_the_scripts_may_save_and_start_another_loader(observed, tmp_path):
    """torch walks its table of hooks while they are called."""
    from torch.optim import optimizer as torch_optimizer

    done = []

    def saves(*_):
        torch.save({}, tmp_path / "checkpoint.pt")
        done.append(len(list(DataLoader([1, 2]))))

    handles = [
        torch_optimizer.register_optimizer_step_pre_hook(saves),
        torch_optimizer.register_optimizer_step_post_hook(saves),
    ]
    try:
        observed.tape.glances.steps.glance(lambda *_: None)  # as in the middle of a row
        observed.tape.glancing, observed.tape.whole = True, False
        observed.tape.glances._row = _Row()
        observed.train(torch.ones(2, 2, 3))
    finally:
        for handle in handles:
            handle.remove()
    assert done == [2] * 4


class _Row:
    def drain(self, now=0):
        return True

    def close(self, now):
        pass


def test_ids_of_hooks_are_the_scripts_own(observed):
    from torch.utils.hooks import RemovableHandle

    observed.patches.take_off()
    before = RemovableHandle.next_id
    install(torch, observed.tape, observed.patches)
    assert RemovableHandle.next_id == before


class Lazy(typing.Mapping):
    """Computes its values when it is asked for them, with random numbers."""

    asked = 0

    def __getitem__(self, key):
        Lazy.asked += 1
        return torch.rand(4, 3)

    def __iter__(self):
        return iter(["x"])

    def __len__(self):
        return 1


class LazyDict(dict):
    def __getitem__(self, key):
        Lazy.asked += 1
        return torch.rand(4, 3)

    values = items = __iter__ = None


class LazyList(list):
    def __getitem__(self, index):
        Lazy.asked += 1
        return torch.rand(4, 3)

    def __iter__(self):
        return iter([self[0]])


class WithShape:
    @property
    def shape(self):
        Lazy.asked += 1
        return (4, 3)


@pytest.mark.parametrize("made", [Lazy, LazyDict, lambda: LazyList([1]), WithShape])
def test_a_batch_that_computes_its_values_is_not_asked(made, observed):
    Lazy.asked = 0
    observed.tape.sampling = True
    for _ in DataLoader([made()], batch_size=None, collate_fn=lambda batch: batch):
        observed.train(torch.ones(1, 4, 3))
    observed.tape.tell()
    assert Lazy.asked == 0


FUNCTIONS = [
    pytest.param(lambda: DataLoader.__init__, id="DataLoader"),
    pytest.param(lambda: DataLoader.__iter__, id="iter"),
    pytest.param(lambda: torch.save, id="save"),
    pytest.param(lambda: torch.autograd.backward, id="backward"),
    pytest.param(lambda: torch.cuda.synchronize, id="synchronize"),
    pytest.param(lambda: torch.nn.Module.train, id="train"),
]


def hints_of(function):
    try:
        return typing.get_type_hints(function)
    except NameError as error:  # some of torch's own names are there for type checkers alone
        return str(error)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_signatures_stay(function, observed):
    def told():
        found = function()
        return (
            inspect.getfullargspec(found),
            str(inspect.signature(found)),
            hints_of(found),
            found.__defaults__,
            found.__kwdefaults__,
            found.__annotations__,
            found.__qualname__,
            inspect.getsource(found),
        )

    during = told()
    observed.patches.take_off()
    assert during == told()


class Broken(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        raise KeyError("the script's own")


def failing():
    yield lambda: list(DataLoader(Broken()))
    yield lambda: DataLoader(Broken(), batch_size=-1)
    yield lambda: torch.zeros(1).sum().backward()
    yield lambda: torch.save(lambda: 0, "/nowhere/at/all")
    yield lambda: torch.zeros(3).item()
    yield lambda: torch.zeros(3).to("no device")
    yield lambda: torch.Tensor.item(torch.zeros(3))
    yield lambda: torch.ones(3).as_subclass(Few).item()


def told_of(call):
    try:
        call()
    except (KeyError, ValueError, RuntimeError, NotImplementedError, OSError) as error:
        return traceback.format_exc(), error.__context__
    raise AssertionError("it did not fail")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before, `raise` remembers a traceback of its own")
def test_tracebacks_show_no_frame_of_ours(observed):
    during = [told_of(call) for call in failing()]
    assert not [text for text, _ in during if "_flatout_agent" in text]
    observed.patches.take_off()
    assert during == [told_of(call) for call in failing()]


def test_warnings_name_the_scripts_line(observed):
    class Deep(torch.utils.data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            for level in range(1, 7):
                warnings.warn(f"level {level}", stacklevel=level)
            return index

    def told():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            list(DataLoader(Deep()))
            torch.autograd.backward(torch.ones(1, requires_grad=True).sum(), grad_variables=None)
            torch.autograd.backward(torch.ones(1, requires_grad=True).sum(), grad_variables=torch.tensor(1.0))
        return [(str(warning.message), warning.filename, warning.lineno) for warning in caught]

    during = told()
    observed.patches.take_off()
    assert during == told()


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
@pytest.mark.skipif(torch_version() < (2, 4), reason="export is young")
def test_export_and_tracing_see_torchs_own_methods(observed):
    from torch._functorch import aot_autograd

    class Net(torch.nn.Module):
        def forward(self, x):
            return (x.to(torch.float64).cpu() + 1).relu()

    def told():
        x = torch.ones(2)
        exported = torch.export.export(Net(), (x,), strict=True)
        traced = torch.jit.trace(Net(), x)
        ahead = []
        aot_autograd.aot_function(Net().forward, fw_compiler=lambda graph, _: ahead.append(str(graph.graph)) or graph)(x)
        return (
            ahead,
            [str(node.target) for node in exported.graph.nodes],
            re.sub(r"___torch_mangle_\d+\.", "", str(traced.graph)),
            exported.module()(x).tolist(),
        )

    during = told()
    observed.patches.take_off()
    assert during == told()


def test_in_another_thread_nothing_of_ours_is_called(observed):
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.zeros(1).item.__class__))
    thread.start()
    thread.join()
    observed.patches.take_off()
    assert found == [torch.zeros(1).item.__class__]
