"""Process-wide switches, checkpointing, and the switchboard's own promises."""

import gc

import pytest

torch = pytest.importorskip("torch")

from stage import Training, same_bits, staged
from torch import nn

from _flatout_agent.core import fault_guard
from _flatout_agent.knobs.cudnn_benchmark import CudnnBenchmark
from _flatout_agent.knobs.knob import Knob, applied
from _flatout_agent.knobs.registry import KNOBS
from _flatout_agent.knobs.switchboard import ORDER
from _flatout_agent.knobs.tf32 import Tf32


def test_names_are_those_of_the_catalogue():
    catalogue = pytest.importorskip("flatout.knobs.catalogue")
    known = {knob.name for knob in catalogue.KNOBS} | {"gc_policy", "checkpointing"}
    assert set(KNOBS) <= known
    assert known - set(KNOBS) <= {"batch_size"}
    assert set(ORDER) == set(KNOBS)
    for knob in catalogue.KNOBS:
        if knob.name in KNOBS:
            assert KNOBS[knob.name].hot == (knob.switch.value == "hot"), knob.name


def flags():
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    new = (matmul.fp32_precision, cudnn.conv.fp32_precision) if hasattr(cudnn, "conv") else ()
    return (matmul.allow_tf32, cudnn.allow_tf32, torch.get_float32_matmul_precision(), *new)


def test_tf32_by_the_old_interface_and_back():
    before = flags()
    knob = Tf32()
    knob._torch = torch
    assert knob.switch().details == {"api": "allow_tf32"}
    assert torch.backends.cuda.matmul.allow_tf32
    assert knob.proof().status == "applied"
    another = other()
    assert another.switch().status == "already"
    another.take_off()
    knob.take_off()
    assert flags() == before


def other():
    knob = Tf32()
    knob._torch = torch
    return knob


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="one interface only")
def test_tf32_by_the_interface_of_the_script():
    matmul = torch.backends.cuda.matmul
    before = flags()
    torch.backends.cudnn.conv.fp32_precision = "ieee"  # the script's own: now the old flag cannot be read
    try:
        knob = other()
        assert knob.switch().details == {"api": "fp32_precision"}
        assert matmul.fp32_precision == "tf32"
        knob.take_off()
        assert torch.backends.cudnn.conv.fp32_precision == "ieee"
        assert matmul.fp32_precision == before[3]
    finally:
        torch.backends.cudnn.conv.fp32_precision = before[4]
    assert flags() == before


def test_what_needs_a_card_says_so():
    with staged() as stage:
        outcomes = stage.board.set({"tf32": "on", "cudnn_benchmark": "on", "non_blocking": "on", "device_prefetch": "on"})
        assert {outcome.code for outcome in outcomes.values()} == {"no-cuda-device"}
        assert stage.board.on == {}
    assert CudnnBenchmark.hot is False


def test_threads_are_put_back():
    before = torch.get_num_threads()
    with staged() as stage:
        assert stage.board.set({"cpu_threads": before + 1})["cpu_threads"].status == "applied"
        assert stage.board.proofs()["cpu_threads"].details == {"threads": before + 1}
        assert stage.board.set({"cpu_threads": before + 1})["cpu_threads"].status == "applied"
        stage.board.set({})
        assert torch.get_num_threads() == before
        assert stage.board.set({"cpu_threads": before})["cpu_threads"].status == "already"


def test_garbage_collection():
    plain = Training().run()
    training = Training()
    with staged(training) as stage:
        stage.board.set({"gc_policy": "on"})
        assert not gc.isenabled()
        training.run()
        assert stage.board.proofs()["gc_policy"].details["steps"] == training.steps
        assert stage.board.proofs()["gc_policy"].details["automatic_collections"] == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert same_bits(plain.weights(), training.weights())
    gc.disable()
    try:
        with staged() as stage:
            assert stage.board.set({"gc_policy": "on"})["gc_policy"].status == "already"
    finally:
        gc.enable()


class Block(nn.Module):
    def __init__(self, norm=nn.LayerNorm):
        super().__init__()
        self.inner = nn.Sequential(norm(16), nn.Linear(16, 16), nn.Dropout(0.3), nn.GELU())

    def forward(self, x, scale=1.0):
        return x + self.inner(x) * scale


class Stack(nn.Module):
    def __init__(self, norm=nn.LayerNorm):
        super().__init__()
        self.first = nn.Linear(192, 16)
        self.blocks = nn.ModuleList(Block(norm) for _ in range(4))
        self.last = nn.Linear(16, 5)

    def forward(self, x):
        x = self.first(x.flatten(1))
        for block in self.blocks:
            x = block(x, scale=0.5)
        return self.last(x)


# torch 2.4 warns of its own use of an old name each time it computes a block again.
CHECKPOINTS = pytest.mark.filterwarnings("ignore:.*autocast:FutureWarning")


@CHECKPOINTS
def test_checkpointing_is_bit_exact_with_dropout():
    plain = Training(model=Stack).run()
    training = Training(model=Stack)
    with staged(training) as stage:
        assert stage.board.set({"checkpointing": "on"})["checkpointing"].details["blocks"] == 4
        training.run()
        proof = stage.board.proofs()["checkpointing"]
        assert proof.details == {"calls": 96, "recomputed": 96}
        assert stage.board.numerics()["checkpointing"] == "exact"
    assert same_bits(plain.weights(), training.weights())
    assert {type(block) for block in training.model.blocks} == {Block}


@CHECKPOINTS
def test_checkpointing_with_precision():
    training = Training(model=Stack)
    with staged(training) as stage:
        stage.board.set({"checkpointing": "on", "precision": "bf16"})
        training.run()
        assert all(proof.status == "applied" for proof in stage.board.proofs().values())


def test_checkpointing_refused():
    with staged(Training(model=lambda: Stack(nn.BatchNorm1d))) as stage:
        assert stage.board.set({"checkpointing": "on"})["checkpointing"].code == "running-statistics-in-blocks"
    with staged() as stage:
        assert stage.board.set({"checkpointing": "on"})["checkpointing"].code == "no-repeated-blocks"


class Faulty(Knob):
    name = "cpu_threads"
    off = 0

    def put_on(self, scene, value):
        if value == "raise":
            raise OSError("ours")
        return applied()

    def take_off(self):
        Faulty.off += 1
        raise OSError("ours too")

    def proof(self):
        raise OSError("and ours")


def test_a_fault_of_ours_stays_ours(monkeypatch):
    monkeypatch.setattr(fault_guard, "_seen", set())
    with staged(kinds={"cpu_threads": Faulty}) as stage:
        assert stage.board.set({"cpu_threads": "raise"})["cpu_threads"].code == "fault"
        assert Faulty.off == 1
        stage.board.set({"cpu_threads": 3})
        assert stage.board.proofs()["cpu_threads"].code == "fault"
        stage.board.set({})
        assert stage.board.on == {}
        assert stage.board.set({"nonsense": 1})["nonsense"].code == "unknown-knob"


def test_only_what_differs_is_changed():
    changes = []

    class Counted(Knob):
        def put_on(self, scene, value):
            changes.append((self.name, value))
            return applied()

        def take_off(self):
            changes.append((self.name, "off"))

        def proof(self):
            return applied()

    kinds = {name: type(name, (Counted,), {"name": name}) for name in ("workers", "persistent_workers", "tf32")}
    with staged(kinds=kinds) as stage:
        stage.board.set({"persistent_workers": "on", "workers": 2, "tf32": "off"})
        stage.board.set({"persistent_workers": "on", "workers": 2})
        stage.board.set({"workers": 2, "tf32": "on"})
    assert changes == [
        ("workers", 2),
        ("persistent_workers", "on"),
        ("persistent_workers", "off"),
        ("tf32", "on"),
        ("workers", "off"),
        ("tf32", "off"),
    ]


def test_a_script_that_checkpoints_itself(tmp_path, monkeypatch):
    """One checkpoint inside another fails in the backward pass, where nothing can be repeated."""
    from _flatout_agent.knobs import script_source

    path = tmp_path / "train.py"
    monkeypatch.setattr(script_source, "own_files", lambda: [str(path)])
    for text in ("from torch.utils.checkpoint import checkpoint", "model.gradient_checkpointing_enable()"):
        path.write_text(text + "\n")
        with staged() as stage:
            outcome = stage.board.set({"checkpointing": "on"})["checkpointing"]
            assert (outcome.status, outcome.code) == ("already", "script-checkpoints")
    path.write_text("# torch.utils.checkpoint is not used\ntorch.save(model, 'checkpoint.pt')\n")
    with staged() as stage:
        assert stage.board.set({"checkpointing": "on"})["checkpointing"].code == "no-repeated-blocks"
