"""What a script may notice while it runs eagerly. Each takes the training and how many steps to take while it listens."""

import argparse
import hashlib
import inspect
import os
import pickle
import sys
import tempfile
import traceback
import typing
import warnings
from collections import Counter

import torch
from torch.overrides import TorchFunctionMode, get_testing_overrides, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

METHODS = ("item", "tolist", "cpu", "to", "cuda")
TABLES = {"start": {getattr(torch.Tensor, name) for name in METHODS}}  # before anybody observes tensors


class Few(torch.Tensor):
    """Knows four functions, and refuses whatever else it is asked."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in TABLES["start"]:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))
        raise NotImplementedError(resolve_name(function))


def a_class_that_knows_few_functions(training, steps):
    def one(batch):
        few = torch.ones(1).as_subclass(Few)
        results.append(
            [few.item(), few.tolist(), type(few.cpu()).__name__, str(few.to(torch.float64).as_subclass(torch.Tensor))]
        )
        return batch

    results = []
    training.steps(4, one)
    return results


def tables_of_methods(training, steps):
    """Made at the start, now, and after some steps: a method is in each, whenever it is looked up."""
    TABLES["now"] = {getattr(torch.Tensor, name) for name in METHODS}
    training.steps(steps)
    TABLES["later"] = {getattr(torch.Tensor, name) for name in METHODS}
    overrides = get_testing_overrides()
    return {
        "found": [[getattr(torch.Tensor, name) in table for name in METHODS] for table in TABLES.values()],
        "among torch's": [method in overrides for method in sorted(TABLES["now"], key=lambda method: method.__name__)],
        "names": [resolve_name(getattr(torch.Tensor, name)) for name in METHODS],
        "pickled": [pickle.loads(pickle.dumps(getattr(torch.Tensor, name))).__name__ for name in METHODS],
    }


class Heard(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(resolve_name(function) or str(function))
        return function(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def read_too(training, number):
    """Steps that also move and read, as a loop that logs."""
    for _ in range(number):
        loss = training.step(lambda x: x.to(torch.float64).to(torch.float32))
        loss.item()
        loss.detach().cpu().tolist()


def under(mode, training, steps):
    with mode:
        read_too(training, steps)
    return [sorted(Counter(mode.names).items()), hashlib.sha256(" ".join(mode.names).encode()).hexdigest()]


def a_function_mode(training, steps):
    return under(Heard(), training, steps)


def a_dispatch_mode(training, steps):
    return under(Dispatched(), training, steps)


def a_profilers_table(training, steps):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=False) as profiler:
        read_too(training, steps)
    return sorted((event.key, event.count) for event in profiler.key_averages())


def a_counter_of_flops(training, steps):
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter:
        read_too(training, steps)
    return sorted(
        (name, str(kind), count) for name, kinds in counter.get_flop_counts().items() for kind, count in kinds.items()
    )


def a_hook_that_saves_and_loads(training, steps):
    """torch walks its table of hooks while they are called."""
    from torch.optim import optimizer as torch_optimizer

    done = []

    def saves(*_):
        torch.save({}, os.path.join(folder, "checkpoint.pt"))
        done.append(len(list(DataLoader([1, 2]))))

    with tempfile.TemporaryDirectory() as folder:
        handles = [
            torch_optimizer.register_optimizer_step_pre_hook(saves),
            torch_optimizer.register_optimizer_step_post_hook(saves),
        ]
        training.steps(3)
        for handle in handles:
            handle.remove()
    return [done, [handle.id for handle in handles], training.weights()]


class Lazy(typing.Mapping):
    """Computes its values when it is asked for them, with random numbers."""

    def __getitem__(self, key):
        return torch.rand(4, 3)

    def __iter__(self):
        return iter(["x"])

    def __len__(self):
        return 1


class LazyDict(dict):
    def __getitem__(self, key):
        return torch.rand(4, 3)

    values = items = __iter__ = None


class LazyList(list):
    def __getitem__(self, index):
        return torch.rand(4, 3)

    def __iter__(self):
        return iter([self[0]])


class WithShape:
    @property
    def shape(self):
        return torch.rand(4, 3).shape


def batches_that_compute_their_values(training, steps):
    learned = []
    for made, take in (
        (Lazy, lambda batch: batch["x"]),
        (LazyDict, lambda batch: batch["x"]),
        (lambda: LazyList([1]), lambda batch: batch[0]),
        (WithShape, lambda batch: torch.rand(batch.shape)),
    ):
        training.data.made = made
        training.steps(10, take)
        learned.append([training.weights(), torch.rand(1).item()])
    return learned


FUNCTIONS = {
    "DataLoader.__init__": lambda: DataLoader.__init__,
    "DataLoader.__iter__": lambda: DataLoader.__iter__,
    "iterator": lambda: torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
    "save": lambda: torch.save,
    "serialization.save": lambda: torch.serialization.save,
    "backward": lambda: torch.autograd.backward,
    "Tensor.backward": lambda: torch.Tensor.backward,
    "synchronize": lambda: torch.cuda.synchronize,
    "Module.train": lambda: torch.nn.Module.train,
    "Module.eval": lambda: torch.nn.Module.eval,
}


def hints_of(function):
    try:
        return sorted((name, str(kind)) for name, kind in typing.get_type_hints(function).items())
    except NameError as error:  # some of torch's own names are there for type checkers alone
        return str(error)


def signatures(training, steps):
    training.step()
    return {
        name: [
            str(inspect.getfullargspec(function())),
            str(inspect.signature(function())),
            hints_of(function()),
            str(function().__defaults__),
            str(function().__kwdefaults__),
            str(function().__annotations__),
            function().__qualname__,
            hashlib.sha256(inspect.getsource(function()).encode()).hexdigest(),
        ]
        for name, function in FUNCTIONS.items()
    }


class OwnLoader(DataLoader):
    """As one that LightningCLI or jsonargparse build from a command line: what it passes on has the parent's types."""

    def __init__(self, dataset, times: int = 1, **kwargs):
        super().__init__(dataset, **kwargs)
        self.times = times


def parameters_of(kind):
    """Names, types and defaults, those of the parents where `**kwargs` goes to them."""
    found = {}
    for owner in kind.__mro__:
        if "__init__" not in vars(owner) or owner is object:
            continue
        spec = inspect.getfullargspec(owner.__init__)
        hints = getattr(owner.__init__, "__annotations__", {})
        defaults = dict(zip(reversed(spec.args), reversed(spec.defaults or ()), strict=False)) | (spec.kwonlydefaults or {})
        for name in [*spec.args[1:], *spec.kwonlyargs]:
            found.setdefault(name, (hints.get(name), defaults.get(name)))
        if spec.varkw is None:
            break
    return found


def reader_of(hint):
    words = str(hint)
    return int if hint is int or "int" in words else float if "float" in words else (lambda word: word == "true")


def a_command_line_from_signatures(training, steps):
    found = parameters_of(OwnLoader)
    parser = argparse.ArgumentParser()
    for name, (hint, default) in found.items():
        parser.add_argument("--" + name, type=reader_of(hint) if hint is not None else None, default=default)
    line = [
        "--batch_size",
        "4",
        "--shuffle",
        "true",
        "--num_workers",
        "0",
        "--timeout",
        "0.0",
        "--times",
        "2",
        "--drop_last",
        "true",
    ]
    told = vars(parser.parse_args(line))
    del told["dataset"]
    torch.manual_seed(5)
    loader = OwnLoader(TensorDataset(torch.arange(10.0)), **told)
    return [
        {name: [str(hint), str(default)] for name, (hint, default) in found.items()},
        [x.tolist() for (x,) in loader],
    ]


def warnings_name_the_scripts_line(training, steps):
    """Of a dataset's code inside the loader that trains, of a backward pass, of a method on tensors."""

    def warns():
        for level in range(1, 7):
            warnings.warn(f"level {level}", stacklevel=level)
        return torch.ones(4, 3)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        training.data.made = warns
        training.steps(3)
        list(DataLoader(OneThatWarns(warns)))
        torch.autograd.backward(torch.ones(1, requires_grad=True).sum(), grad_variables=torch.tensor(1.0))
    return [(str(warning.message), warning.filename, warning.lineno) for warning in caught]


class OneThatWarns(torch.utils.data.Dataset):
    def __init__(self, warns):
        self.warns = warns

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return self.warns()


def fails():
    raise KeyError("the script's own")


def tracebacks(training, steps):
    """Of the loader that trains, each time in the midst of a row of steps, and of whatever else we stand in."""

    def of_the_loader():
        training.data.made = fails
        try:
            next(training.batches)
        finally:
            training.data.made = None

    told = []
    for call in (
        of_the_loader,
        lambda: DataLoader([1], batch_size=-1),
        lambda: torch.zeros(1).sum().backward(),
        lambda: torch.save(lambda: 0, "/nowhere/at/all"),
        lambda: torch.zeros(3).item(),
        lambda: torch.zeros(3).to("no device"),
        lambda: torch.ones(3).as_subclass(Few).item(),
        lambda: torch.nn.Module.train(torch.nn.Linear(1, 1), "yes"),
    ):
        training.steps(3)
        try:
            call()
        except (KeyError, ValueError, RuntimeError, NotImplementedError, AttributeError, OSError) as error:
            told.append([traceback.format_exc() if sys.version_info >= (3, 11) else repr(error), repr(error.__context__)])
    return told


def what_lies_in_the_folder(training, steps):
    return sorted(os.listdir())
