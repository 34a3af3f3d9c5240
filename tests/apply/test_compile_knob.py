"""torch.compile on a root: graphs counted, hooks and evaluation respected, refusals, no trace."""

import copy
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from stage import Net, Training, find_own_files, staged
from torch import nn

from _flatout_agent.knobs import script_source
from _flatout_agent.knobs.compile import LIMITS, Compile, CompileLayer, _Steps
from _flatout_agent.knobs.registry import KNOBS
from _flatout_agent.knobs.root_modules import WHOLE_STEPS, RootFinder
from _flatout_agent.knobs.script_source import says_create_graph

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles


class EagerCompile(Compile):
    backend = "aot_eager"  # Dynamo and autograd without the minutes of a compiler


KINDS = {**KNOBS, "compile": EagerCompile}


def limits():
    import torch._dynamo.config as config

    return {name: getattr(config, name, None) for name in LIMITS}


def test_captured_counted_and_gone():
    before = limits()
    plain = Training(epochs=1).run()
    training = Training(epochs=1)
    with staged(training, KINDS) as stage:
        assert stage.board.set({"compile": "default"})["compile"].status == "applied"
        assert stage.board.proofs()["compile"].code == "not-called-yet"
        training.run()
        proof = stage.board.proofs()["compile"]
        assert proof.status == "applied", proof
        assert proof.details["graphs"] == 1
        assert proof.details["graph_breaks"] == proof.details["recompiles"] == proof.details["limit_hits"] == 0
        assert proof.details["calls"] == 12
        assert type(copy.deepcopy(training.model)) is Net
        pickle.loads(pickle.dumps(training.model))
        assert list(training.model.state_dict()) == list(plain.model.state_dict())
    assert type(training.model) is Net
    assert limits() == before
    assert training.losses == pytest.approx(plain.losses, rel=1e-3)


def test_containers_are_captured_too():
    training = Training(model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), epochs=1)
    with staged(training, KINDS) as stage:
        stage.board.set({"compile": "default"})
        training.run()
        assert stage.board.proofs()["compile"].details["graphs"] == 1


def test_with_precision_and_layout():
    training = Training(epochs=2)
    with staged(training, KINDS) as stage:
        wanted = {"compile": "default", "precision": "bf16", "channels_last": "on", "fused_optimizer": "on"}

        def at(step):
            if step == 4:
                assert all(outcome.status == "applied" for outcome in stage.board.set(wanted).values())
            if step == 10:
                proofs = stage.board.proofs()
                assert proofs["compile"].status == proofs["fused_optimizer"].status == "applied", proofs
                assert proofs["precision"].status == proofs["channels_last"].status == "applied", proofs
                # Looked at in one call that was not compiled: in compiled code there is nothing to be seen.
                assert "convolution" in proofs["precision"].details["operations"], proofs
                assert proofs["compile"].details["calls"] == 5, proofs
                stage.board.set({"compile": "default"})
            if step == 16:
                assert stage.board.proofs()["compile"].status == "applied"

        training.run(at)
    assert type(training.model) is Net


MODES = ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]


@pytest.mark.parametrize("mode", MODES)
def test_variable_shapes_are_recompiled_and_counted(mode):
    """A batch of another size at every step: the same outputs and weights as without us, and the price is told."""

    def trained(knobs):
        training = Training(model=lambda: nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 5)))
        kept = []
        with staged(training, KINDS) as stage:
            stage.board.set(knobs)
            for number, size in enumerate((8, 9, 10, 8, 11, 12)):
                x = torch.randn(2 + number % 2, 3, size, size, generator=torch.Generator().manual_seed(size))
                output = training.model(x)
                output.pow(2).sum().backward()
                training.optimizer.step()
                training.optimizer.zero_grad()
                kept.append(output.detach())
            proof = stage.board.proofs().get("compile")
        return kept, training.weights(), proof

    plain, weights, _ = trained({})
    ours, compiled, proof = trained({"compile": mode})
    assert proof.status == "applied", proof
    assert proof.details["recompiles"] >= 1
    assert all(torch.allclose(first, second, atol=1e-5) for first, second in zip(plain, ours, strict=True))
    assert all(torch.allclose(weights[name], compiled[name], atol=1e-5) for name in weights)


class Counts(nn.Module):
    """Another constant at every call: every call is another variant."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)
        self.name = "0"

    def forward(self, x):
        return self.layer(x) * len(self.name)


def test_too_many_variants_are_told_and_right(monkeypatch):
    """Beyond the limit Dynamo runs the model plain and says nothing: then the knob is not called applied."""
    monkeypatch.setattr("_flatout_agent.knobs.compile.LIMITS", {"recompile_limit": 4})
    config = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    training = Training(model=Counts)
    x = torch.ones(2, 4)
    with config.patch({limit: 4}), staged(training, KINDS) as stage:
        stage.board.set({"compile": "default"})
        for number in range(1, 9):
            training.model.name = "n" * number
            output = training.model(x)
            assert torch.allclose(output, training.model.layer(x) * number)
            output.sum().backward()
        proof = stage.board.proofs()["compile"]
    assert (proof.status, proof.code) == ("refused", "recompile-limit"), proof
    assert proof.details["limit_hits"] >= 1 or proof.details["recompiles"] >= 3


class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(192, 5)

    def forward(self, x):
        y = self.layer(x.flatten(1))
        print("", end="")
        return y * 2


def test_breaks_are_counted():
    training = Training(model=Breaks, epochs=1)
    with staged(training, KINDS) as stage:
        stage.board.set({"compile": "default"})
        training.run()
        proof = stage.board.proofs()["compile"]
        assert proof.status == "applied", proof
        assert proof.details["graph_breaks"] >= 1


@pytest.mark.parametrize("mode", MODES)
def test_two_calls_a_step_and_outputs_kept(mode):
    def trained(knobs):
        training = Training(epochs=1)
        training.model.drop.p = 0.0
        kept = []
        with staged(training, KINDS) as stage:
            stage.board.set(knobs)
            for x, _, _ in training.loader:
                first, second = training.model(x), training.model(x.flip(0))
                (first - second).pow(2).mean().backward()
                training.optimizer.step()
                training.optimizer.zero_grad()
                kept.append(first.detach())
        return torch.stack(kept)

    assert torch.allclose(trained({}), trained({"compile": mode}), atol=1e-4)


def test_only_the_first_call_of_a_step_goes_through_a_cuda_graph():
    """The second would overwrite what the first one's backward pass still needs (seen on an H200, torch 2.11)."""

    steps = _Steps(torch)
    layer = CompileLayer(torch, lambda module, x: x + 1, steps)
    run, x = layer.wrap(lambda module, args, kwargs: "plain"), torch.zeros(2)
    module = nn.Linear(2, 2)
    for _ in range(2):
        assert run(module, (x,), {}).tolist() == [1, 1]
        assert run(module, (x,), {}) == "plain"
        with torch.no_grad():
            assert run(module, (x,), {}).tolist() == [1, 1]
        steps.stepped()
    assert (layer.calls, layer.again) == (6, 2)


def test_evaluation_runs_plain():
    training = Training()
    with staged(training, KINDS) as stage:
        stage.board.set({"compile": "default"})
        training.model.eval()
        training.model(training.loader.dataset.x[:2])
        assert stage.board.proofs()["compile"].code == "not-called-yet"


def hooked():
    model = Net()
    model.register_forward_hook(lambda module, args, output: output * 2)
    return model


def with_own_forward():
    model = Net()
    forward = model.forward
    model.forward = lambda x: forward(x)
    return model


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [
        (hooked, "refused", "hooks-on-root"),
        (with_own_forward, "refused", "forward-set-on-instance"),
        (lambda: torch.compile(Net(), backend="eager"), "already", "script-compiles"),
    ],
)
def test_refused(model, status, code):
    with staged(Training(model=model), KINDS) as stage:
        outcome = stage.board.set({"compile": "default"})["compile"]
        assert (outcome.status, outcome.code) == (status, code)


def test_no_compiler(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with staged() as stage:
        assert stage.board.set({"compile": "default"})["compile"].code == "no-c++-compiler"
        assert stage.board.set({"compile": "fast"})["compile"].code == "unknown-value"


def test_a_hook_that_comes_later_is_run():
    training = Training()
    with staged(training, KINDS) as stage:
        stage.board.set({"compile": "default"})
        called = []
        training.model.register_forward_hook(lambda *_: called.append(1))
        training.model(training.loader.dataset.x[:2])
        assert called == [1]
        assert stage.board.proofs()["compile"].code == "hooks-on-root"


def test_precision_on_a_model_that_the_script_compiled():
    training = Training(model=lambda: torch.compile(Net(), backend="eager"), epochs=1)
    with staged(training, KINDS) as stage:
        assert stage.board.set({"precision": "bf16"})["precision"].status == "applied"
        training.run()
        assert type(training.model).__name__ == "OptimizedModule"
        assert stage.board.proofs()["precision"].status == "applied"


INDUCTOR = """
import sys; sys.path[:0] = sys.argv[1:]
from stage import Training, staged
from torch import nn
training = Training(model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), epochs=1)
with staged(training) as stage:
    print(stage.board.set({"compile": "default"})["compile"].status)
    training.run()
    proof = stage.board.proofs()["compile"]
    print(proof.status, proof.details["graphs"], proof.details["graph_breaks"])
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="no compiler on this machine")
def test_inductor_itself():
    """In a process of its own: it changes the environment and the path."""
    here = Path(__file__).resolve().parent
    command = [sys.executable, "-c", INDUCTOR, str(here), str(here.parents[1] / "src")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.stdout.split("\n")[:2] == ["applied", "applied 1 0"], ended.stderr


TWICE = {"create_graph": True}  # not in the words that are looked for: this file is a source of the script's, too


def test_gradients_of_gradients_are_refused():
    """Compiled code raises in the second backward pass, where the call can no longer be repeated without us."""
    training = Training()
    finder = RootFinder(torch)
    before = vars(torch.autograd)["_engine_run_backward"]
    finder.begin()
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    for _ in range(WHOLE_STEPS + 1):
        (slope,) = torch.autograd.grad(training.model(x).sum(), x, **TWICE)
        slope.pow(2).sum().backward()
        finder.step_ended()
    assert finder.done
    assert vars(torch.autograd)["_engine_run_backward"] is before
    with staged(training, KINDS) as stage:
        stage.scene.double_backward_seen = finder.double_backward_seen
        assert stage.board.set({"compile": "default"})["compile"].code == "double-backward"


def test_a_penalty_that_comes_later_is_found_in_the_source(tmp_path, monkeypatch):
    path = tmp_path / "penalties.py"
    module = ModuleType("penalties")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "penalties", module)
    monkeypatch.setattr(script_source, "MOST_FILES", 10_000)  # the whole suite is in this process
    assert str(path) in find_own_files()
    assert torch.__file__ not in find_own_files()
    monkeypatch.setattr(script_source, "own_files", lambda: [str(path)])
    (name,) = TWICE
    path.write_text(f"# {name}=True would do\ngrad(y, x, {name}=False)\n")
    assert says_create_graph() == ""
    path.write_text(f"import torch\ngrad(y, x, {name} = True)\n")
    assert says_create_graph() == "penalties.py:2"
    with staged(Training(), KINDS) as stage:
        assert stage.board.set({"compile": "default"})["compile"].code == "double-backward"


def test_nothing_is_compiled_while_the_script_profiles_itself():
    """In torch 2.13 the profiler raises at its end, if something was compiled while it recorded stacks."""
    torch._dynamo.reset()  # what another test left compiled would be taken, and nothing captured
    training = Training(epochs=1)
    proofs = []
    with staged(training, KINDS) as stage:
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True)

        def at(step):
            if step == 3:
                profiler.start()
                stage.board.set({"compile": "default"})
            if step == 6:
                proofs.append(stage.board.proofs()["compile"])
                profiler.stop()
                assert profiler.key_averages()
            if step == 9:
                proofs.append(stage.board.proofs()["compile"])

        training.run(at)
    assert proofs[0].code == "script-profiles"
    assert proofs[1].status == "applied", proofs
    assert proofs[1].details["calls"] == 3
