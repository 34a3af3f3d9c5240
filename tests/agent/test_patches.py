"""What the agent puts on torch: invisible to those who look, and gone without a trace."""

import copy
import pickle
import threading
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import _flatout_agent
from _flatout_agent.core import own_folder
from _flatout_agent.core.patches import Patches
from _flatout_agent.start import install
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.hooks import device_copies
from _flatout_agent.timeline.step_clock import StepClock
from conftest import torch_version

METHODS = ("to", "cuda", "cpu", "item", "tolist")
BASE = torch._C.TensorBase if torch_version() >= (2, 1) else torch._C._TensorBase


@pytest.fixture
def device(monkeypatch):
    """As if the script had begun to use one: only then are there any observers on tensors."""
    monkeypatch.setattr(device_copies, "device_at_hand", lambda torch: True)


@pytest.fixture
def installed(device):
    tape, patches = Tape(StepClock(time.perf_counter_ns()), lambda now: None), Patches()
    install(torch, tape, patches)
    yield tape
    patches.take_off()


def surface():
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    return (
        {name: vars(torch.Tensor).get(name) for name in METHODS},
        torch.save,
        torch.serialization.save,
        torch.autograd.backward,
        torch.cuda.synchronize,
        dataloader._BaseDataLoaderIter.__next__,
        dataloader.DataLoader.__iter__,
        dict(optimizer._global_optimizer_pre_hooks),
        dict(optimizer._global_optimizer_post_hooks),
    )


def test_without_a_device_the_tensor_class_is_untouched():
    before = dict(vars(torch.Tensor))
    tape, patches = Tape(StepClock(0), lambda now: None), Patches()
    install(torch, tape, patches)
    assert dict(vars(torch.Tensor)) == before
    transfers_wanted = tape.look_for_device
    patches.take_off()
    assert dict(vars(torch.Tensor)) == before
    transfers_wanted()
    assert dict(vars(torch.Tensor)) == before


def test_put_on_as_soon_as_a_device_is_used(monkeypatch):
    used = []
    monkeypatch.setattr(device_copies, "device_at_hand", lambda torch: bool(used))
    tape, patches = Tape(StepClock(0), lambda now: None), Patches()
    install(torch, tape, patches)
    try:
        assert "item" not in vars(torch.Tensor)
        used.append(True)
        next(iter(torch.utils.data.DataLoader([1])))
        assert "item" in vars(torch.Tensor)
    finally:
        patches.take_off()


def test_taken_off_without_a_trace(device):
    before = surface()
    tape, patches = Tape(StepClock(0), lambda now: None), Patches()
    install(torch, tape, patches)
    assert surface() != before
    patches.take_off()
    assert surface() == before


def test_methods_stay_in_the_sets_that_others_keep(installed):
    """torchvision's image tensors and torch's own Parameter look methods up in sets and dicts."""
    for name in METHODS:
        twin, original = getattr(torch.Tensor, name), getattr(BASE, name)
        assert original in {twin}
        assert twin in {original}
        assert {original: 1}[twin] == 1
        assert twin.__name__ == name
        assert twin.__doc__ == original.__doc__
        assert pickle.dumps(twin) == pickle.dumps(original)
        assert pickle.loads(pickle.dumps(twin)) == original
    assert torch.Tensor.to != torch.Tensor.cuda


def test_subclasses_that_dispatch_on_a_method_still_do(installed):
    kept = {torch.Tensor.to, torch.Tensor.clone}

    class Image(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                result = func(*args, **(kwargs or {}))
            return result.as_subclass(cls) if func in kept else result.as_subclass(torch.Tensor)

    image = torch.zeros(2).as_subclass(Image)
    assert type(image.to(torch.float64)) is Image
    assert type(image + 1) is torch.Tensor


def test_functions_can_still_be_pickled_by_name(installed):
    for function in (torch.save, torch.autograd.backward):
        assert pickle.loads(pickle.dumps(function)) is function


def test_module_copies_pickles_and_saves_are_plain(installed, tmp_path):
    net = torch.nn.Linear(2, 2)
    net(torch.zeros(1, 2)).sum().backward()
    assert b"flatout" not in pickle.dumps(net)
    assert copy.deepcopy(net).weight.equal(net.weight)
    torch.save(net, tmp_path / "net.pt")
    assert b"flatout" not in (tmp_path / "net.pt").read_bytes()


def test_a_broken_clock_never_reaches_the_script(monkeypatch, request):
    for name in ("fetched", "loader_started", "exhausted", "backward_began", "backward_ended", "step_began", "step_ended",
                 "saved", "copied", "waited"):  # fmt: skip
        monkeypatch.setattr(StepClock, name, lambda *_: 1 / 0)
    request.getfixturevalue("installed")
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2)), batch_size=2):
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        loss.item()
    torch.ones(2).to("meta")


def test_user_errors_pass_through(installed):
    class Broken(torch.utils.data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            raise KeyError("the user's own")

    with pytest.raises(KeyError, match="the user's own"):
        next(iter(torch.utils.data.DataLoader(Broken())))
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.zeros(1).sum().backward()
    with pytest.raises(RuntimeError):
        torch.zeros(3).item()


@pytest.mark.skipif(torch_version() < (2, 1), reason="torch 2.0 has no hook after a gradient is accumulated")
def test_steps_inside_the_backward_pass_taken_by_another_thread(installed):
    """As on a GPU, where torch runs the backward pass in threads of its own: the training stays the script's thread's."""
    net = torch.nn.Linear(2, 2)
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in net.parameters()}

    def step_elsewhere(parameter):
        thread = threading.Thread(target=optimizers[parameter].step)
        thread.start()
        thread.join()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(step_elsewhere)
    for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2)), batch_size=2):
        net(x).sum().backward()
    installed.tell()
    assert (installed.clock.steps, installed.clock.samples, installed.owner) == (4, 8, threading.get_ident())


def test_the_agent_knows_its_own_folder():
    """By it frames and files of ours are told from the script's."""
    assert Path(own_folder.OWN_FOLDER) == Path(_flatout_agent.__file__).parent
