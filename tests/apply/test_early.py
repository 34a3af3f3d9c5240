"""Knobs that must come before the first step: put on while nobody knows the device, proved or refused once it is known."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from stage import Stage, Training

from _flatout_agent.knobs import allocator, script_source
from _flatout_agent.knobs.knob import UNKNOWN, Scene
from _flatout_agent.knobs.registry import KNOBS
from _flatout_agent.knobs.switchboard import Switchboard
from _flatout_agent.modes.driver import early_knobs

EARLY = {"cudnn_benchmark": "on", "allocator": "expandable"}


class CardTorch:
    """A torch that was built for a card: its allocator notes what it is told, and says it."""

    def __init__(self, takes=True, initialized=False):
        self.told = []
        self.version = SimpleNamespace(cuda="12.8", hip=None)
        cudnn = SimpleNamespace(benchmark=False, deterministic=False, is_available=lambda: True)
        self.backends = SimpleNamespace(cudnn=cudnn)
        self.are_deterministic_algorithms_enabled = lambda: False
        self._C = SimpleNamespace(_cuda_cudaCachingAllocator_set_allocator_settings=self.told.append)
        says = lambda: {"allocator_settings": {"expandable_segments": takes and "expandable_segments:True" in self.told[-1:]}}  # noqa: E731
        self.cuda = SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: initialized, memory=SimpleNamespace(_snapshot=says)
        )
        self.Tensor, self.compiler = torch.Tensor, torch.compiler


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in allocator.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(script_source, "own_files", list)  # this file speaks of the allocator, too


def board_of(card, device=UNKNOWN):
    return Switchboard(Scene(card, device), KNOBS)


def test_both_are_early():
    assert early_knobs({**EARLY, "workers": 2}) == EARLY


def test_put_on_before_the_device_is_known_and_proved_after():
    card = CardTorch()
    board = board_of(card)
    assert {outcome.status for outcome in board.set(EARLY).values()} == {"applied"}
    assert card.backends.cudnn.benchmark
    board.scene.steps_done, board.scene.device_type = 6, "cuda"
    again = board.set(EARLY)  # the whole profile, once the script's parts are known
    assert {outcome.status for outcome in again.values()} == {"applied"}
    assert board.proofs()["allocator"].details == {"setting": "expandable_segments:True"}
    assert board.numerics() == {"cudnn_benchmark": "tolerance", "allocator": "exact"}
    board.clear()
    assert not card.backends.cudnn.benchmark
    assert card.told == ["expandable_segments:True", "expandable_segments:False"]


class Convolution(torch.nn.Module):
    """The only kind of convolution that this torch knows: others may be alive in this process."""


@pytest.mark.parametrize(
    ("root", "beside", "expected"),
    [
        (torch.nn.Linear(2, 2), None, "no-convolutions"),
        (torch.nn.Linear(2, 2), Convolution(), None),  # a frozen network of the loss
        (torch.nn.Conv1d(2, 2, 3), None, None),  # its weight has three sides, as one that a function takes
    ],
)
def test_plans_are_searched_only_where_there_are_convolutions(root, beside, expected):
    card = CardTorch()
    known = Convolution if beside is not None else type("Unheard", (), {})
    card.nn = SimpleNamespace(modules=SimpleNamespace(conv=SimpleNamespace(_ConvNd=known)))
    board = board_of(card)
    board.set({"cudnn_benchmark": "on"})
    board.scene.device_type = "cuda"
    assert board.proofs()["cudnn_benchmark"].status == "applied"  # nobody knows yet
    board.scene.found(roots=[root])
    proof = board.proofs()["cudnn_benchmark"]
    assert (proof.status, proof.code or None) == (("refused", expected) if expected else ("applied", None))


def test_a_model_that_stays_on_the_processor():
    board = board_of(CardTorch())
    board.set(EARLY)
    board.scene.device_type = "cpu"
    assert {proof.code for proof in board.proofs().values()} == {"no-cuda-device"}


def test_a_torch_without_cuda():
    with_none = board_of(torch)
    expected = {"no-cuda-device"} if torch.version.cuda is None and torch.version.hip is None else set()
    assert expected <= {outcome.code for outcome in with_none.set(EARLY).values()}
    with_none.clear()
    stage = Stage(Training())
    assert stage.board.set({"allocator": "expandable"})["allocator"].code == "no-cuda-device"
    stage.close()


@pytest.mark.parametrize(
    ("found", "status", "code"),
    [
        ("expandable_segments:True", "already", "environment-set-it"),
        ("max_split_size_mb:64, expandable_segments: True", "already", "environment-set-it"),
        ("expandable_segments:False", "refused", "environment-chose"),
        ("max_split_size_mb:64", "refused", "environment-chose"),
    ],
)
def test_a_variable_is_the_users(monkeypatch, found, status, code):
    card = CardTorch()
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", found)
    outcome = board_of(card).set({"allocator": "expandable"})["allocator"]
    assert (outcome.status, outcome.code) == (status, code)
    assert card.told == []


def test_a_script_that_sets_it_later(monkeypatch, tmp_path):
    path = tmp_path / "train.py"
    path.write_text('import torch, os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:64"\n')
    monkeypatch.setattr(script_source, "own_files", lambda: [str(path)])
    outcome = board_of(CardTorch()).set({"allocator": "expandable"})["allocator"]
    assert (outcome.code, outcome.details) == ("script-sets-allocator", {"where": "train.py:2"})


def test_too_late_unknown_or_not_taken():
    assert board_of(CardTorch(), "cuda").set({"allocator": "roundup"})["allocator"].code == "memory-allocated-already"
    assert board_of(CardTorch(initialized=True)).set({"allocator": "roundup"})["allocator"].code == "memory-allocated-already"
    assert board_of(CardTorch()).set({"allocator": "tight"})["allocator"].code == "unknown-value"
    card = CardTorch()
    card._C = SimpleNamespace()
    assert board_of(card).set({"allocator": "roundup"})["allocator"].code == "no-allocator-settings"
    board = board_of(CardTorch(takes=False))  # Windows
    board.set({"allocator": "expandable"})
    board.scene.device_type = "cuda"
    assert board.proofs()["allocator"].code == "allocator-did-not-take-it"


def test_the_front_knows_the_same_settings():
    settings = pytest.importorskip("flatout.launch.settings")
    assert {name: parts[0] for name, parts in allocator.SETTINGS.items()} == settings.ALLOCATOR_SETTINGS
    assert settings.ALLOCATOR_VARIABLES == allocator.VARIABLES
