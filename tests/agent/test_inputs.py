"""Samples, tokens and evaluation of loops without a DataLoader, by a real torch with the observers on."""

import time
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from _flatout_agent.core import module_hooks
from _flatout_agent.core.patches import Patches
from _flatout_agent.start import install
from _flatout_agent.timeline.event_buffer import Tape
from _flatout_agent.timeline.phase_totals import FORWARD, VALIDATION
from _flatout_agent.timeline.step_clock import StepClock
from conftest import torch_version


@pytest.fixture
def tape():
    patches, tape = Patches(), Tape(StepClock(time.perf_counter_ns()), lambda now: None)
    install(torch, tape, patches)
    yield tape
    patches.take_off()


def counted(tape):
    tape.tell()
    clock = tape.clock
    return clock.steps, clock.samples + clock.samples_before


def hooks():
    from torch.nn.modules import module

    return len(module._global_forward_hooks) + len(module._global_forward_pre_hooks)


class Language(nn.Module):
    """Gives a tuple, as nanoGPT does."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)

    def forward(self, tokens, targets=None):
        logits = self.head(self.embedding(tokens))
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def test_accumulated_tokens(tape):
    model = Language()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        for _ in range(3):
            model(torch.randint(0, 11, (4, 6)))[1].backward()
        optimizer.step()
        optimizer.zero_grad()
    assert counted(tape) == (10, 120)
    assert tape.look.told(120)["tokens"] == 720
    assert not hooks()


def test_a_model_that_is_called_by_names(tape):
    model = Language()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        model(tokens=torch.randint(0, 11, (5, 6)))[1].backward()
        optimizer.step()
    assert counted(tape) == (8, 40)


@pytest.mark.parametrize(("critic", "rounds"), [(1, 12), (5, 12)])
def test_several_roots_and_optimizers(critic, rounds, tape):
    maker, judge = nn.Linear(3, 6), nn.Linear(6, 1)
    of_maker, of_judge = (torch.optim.SGD(net.parameters(), lr=0.01) for net in (maker, judge))
    for _ in range(rounds):
        for _ in range(critic):
            made = maker(torch.randn(16, 3)).detach()
            (judge(torch.randn(16, 6)).mean() - judge(made).mean()).backward()
            of_judge.step()
        judge(maker(torch.randn(16, 3))).mean().backward()
        of_maker.step()
    steps, samples = counted(tape)
    assert steps == rounds
    assert samples == rounds * 16 * (critic + 1)  # what the maker makes
    assert not hooks()


def test_steps_of_many_sizes_are_not_guessed(tape):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for size in range(1, 20):
        model(torch.randn(size, 4)).sum().backward()
        optimizer.step()
    assert counted(tape) == (19, 0)
    assert not hooks()


def test_a_loop_with_a_loader_never_has_the_hooks(tape):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(60, 4)), 3):
        seen.append(hooks())
        model(x).sum().backward()
        optimizer.step()
    assert counted(tape) == (20, 60)
    assert not any(seen)
    assert tape.inputs is None  # asked no more


def test_evaluation_between_steps_is_validation(tape):
    model = Language()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    spent = 0.0
    for step in range(30):
        if step % 10 == 5:
            began = time.perf_counter()
            model.eval()
            with torch.no_grad():
                model(torch.randint(0, 11, (4, 6)))
            time.sleep(0.03)
            model.train()
            spent += time.perf_counter() - began
        model(torch.randint(0, 11, (4, 6)))[1].backward()
        optimizer.step()
    assert counted(tape) == (30, 120)
    assert tape.clock.evaluations == 3
    assert tape.clock.totals[VALIDATION] / 1e9 == pytest.approx(spent, abs=0.005)


def test_training_in_the_mode_of_evaluation_is_training(tape):
    model = Language()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        if step == 2:
            model.eval()  # for the rest of it
        time.sleep(0.01)
        model(torch.randint(0, 11, (4, 6)))[1].backward()
        optimizer.step()
    counted(tape)
    assert tape.clock.totals[VALIDATION] == 0
    assert tape.clock.totals[FORWARD] > 30e6


def test_modes_are_set_as_without_us(tape):
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    tape.ticks = 1
    assert model.eval() is model
    assert not model[1].training
    assert model.train() is model
    assert model[1].training
    with pytest.raises(ValueError, match="mode"):
        model.train("yes")
    nn.Module.train(self=model, mode=False)
    assert not model.training


@pytest.mark.skipif(torch_version() < (2, 3), reason="before, Dynamo has no callbacks, and 2.0 cannot on Python 3.11")
def test_a_model_that_is_compiled_while_the_hooks_are_on(tape):
    """Neither warned of nor traced: Dynamo fails on them. In the compiled code's guards they would be missed later."""
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(called):
        called(torch.randn(4, 4)).sum().backward()
        optimizer.step()

    step(model)
    step(model)
    assert hooks() == 2
    compiled_frames = []

    def backend(graph, inputs):
        compiled_frames.append(hooks())
        return graph.forward

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*global hooks? on modules")
        warnings.filterwarnings("error", message=".*global module forward hook")
        fast = torch.compile(model, backend=backend)
        for _ in range(6):
            step(fast)
    assert compiled_frames == [0]


def test_the_scripts_own_global_hooks_are_told_of(tape):
    from torch.nn.modules import module

    if not hasattr(module, "_has_any_global_hook"):
        pytest.skip("torch before 2.6")
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 4)).sum().backward()
    optimizer.step()
    assert hooks() == 2
    assert not module._has_any_global_hook()
    handle = module.register_module_forward_pre_hook(lambda *_: None)
    assert module._has_any_global_hook()
    handle.remove()
    assert not module._has_any_global_hook()


@pytest.mark.parametrize("first", [0, 1])
def test_two_pairs_of_hooks_whichever_goes_first(first):
    from torch.nn.modules import module

    plain = getattr(module, "_has_any_global_hook", None)
    if plain is None:
        pytest.skip("torch before 2.6")
    pairs = [module_hooks.put_on(lambda *_: None, lambda *_: None) for _ in range(2)]
    assert (hooks(), module._has_any_global_hook()) == (4, False)
    pairs.pop(first).take_off()
    assert (hooks(), module._has_any_global_hook()) == (2, False)
    pairs.pop().take_off()
    assert hooks() == 0
    assert module._has_any_global_hook is plain


class TrainsWhereACallRaised:
    """A hook of the script's on every module: torch walks its own table while it calls this one."""

    def __init__(self, steps):
        self.model, self.steps = nn.Linear(4, 1), steps
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.raised = False

    def __call__(self, module, args, output):
        if output is None and not self.raised:
            self.raised = True
            for _ in range(self.steps):
                self.model(torch.ones(5, 4)).sum().backward()
                self.optimizer.step()


@pytest.mark.parametrize("before", [0, 2, 6])
def test_a_table_that_torch_walks_keeps_its_keys(before, tape):
    """Before ours are put on, while they are on, and after: the script sees its own exception."""
    from torch.nn.modules import module

    model = Language()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="embedding"):
        model(None)
    for _ in range(before):
        model(torch.randint(0, 11, (4, 6)))[1].backward()
        optimizer.step()
    hooked = TrainsWhereACallRaised(8), lambda *_: None
    handles = [module.register_module_forward_hook(hook, always_call=True) for hook in hooked]
    try:
        with pytest.raises(TypeError, match="embedding"):
            model(None)
    finally:
        for handle in handles:
            handle.remove()
    for _ in range(20):
        model(torch.randint(0, 11, (4, 6)))[1].backward()
        optimizer.step()
    assert hooks() == 0


def test_ids_of_hooks_on_modules_are_the_scripts_own(tape):
    from torch.utils.hooks import RemovableHandle

    model, before = nn.Linear(4, 1), RemovableHandle.next_id
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(6):
        model(torch.randn(4, 4)).sum().backward()
        optimizer.step()
        assert hooks() == 2 or number
    assert RemovableHandle.next_id == before


@pytest.mark.skipif(torch_version() < (2, 3), reason="before, Dynamo has no callbacks, and 2.0 cannot on Python 3.11")
def test_hooks_that_could_not_be_taken_off_are_not_looked_into(tape, monkeypatch):
    """A fault of ours: Dynamo meets them, and fails on a module that it meets twice."""
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fast = torch.compile(model, backend="eager")
    inputs, taken_off = tape.inputs, module_hooks.Hooks.take_off

    def broken(self):
        raise RuntimeError("ours")

    monkeypatch.setattr(module_hooks.Hooks, "take_off", broken)
    try:
        for called in (model, model, fast, fast):
            called(torch.randn(4, 4)).sum().backward()
            optimizer.step()
        assert hooks() == 2
    finally:
        taken_off(inputs._hooks)


def test_a_call_that_raises_while_the_hooks_are_on(tape):
    model = Language()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(8):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(TypeError):
                model(None)
        model(torch.randint(0, 11, (5, 6)))[1].backward()
        optimizer.step()
        assert hooks() == 2 or number > 2
    assert counted(tape)[0] == 8
