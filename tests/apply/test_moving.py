"""Copies of batches: which calls are touched and which are not, on a machine without a card."""

import pytest

torch = pytest.importorskip("torch")

from _flatout_agent.core.patches import Patches
from _flatout_agent.knobs.knob import Scene
from _flatout_agent.knobs.loader.batch_copies import Mover
from _flatout_agent.knobs.loader.non_blocking import NonBlocking


class FakeMover(Mover):
    """With a batch that counts as pinned, and a card that is the host."""

    def batch(self, *tensors):
        import weakref

        self._loose = {id(tensor): (weakref.ref(tensor), place) for place, tensor in enumerate(tensors)}


def moves(mover, method="to"):
    calls = []

    def original(tensor, *args, **kwargs):
        calls.append((args, kwargs))
        return tensor

    return mover.wrap(original, method), calls


@pytest.mark.parametrize(
    ("args", "kwargs", "touched"),
    [
        (("cuda:0",), {}, True),
        ((torch.device("cuda", 0),), {}, True),
        ((0,), {}, True),
        ((), {"device": "cuda:0"}, True),
        (("cpu",), {}, False),
        ((torch.float16,), {}, False),
        (("cuda:0", torch.float16), {}, False),
        (("cuda:0",), {"copy": True}, False),
    ],
)
def test_only_plain_copies_to_the_card(args, kwargs, touched):
    mover = FakeMover(torch)
    mover.users = {"non_blocking"}
    move, calls = moves(mover)
    x = torch.ones(2)
    mover.batch(x)
    move(x, *args, **kwargs)
    assert calls == [(args, {**kwargs, "non_blocking": True} if touched else kwargs)]
    assert mover.made_non_blocking == touched


def test_other_tensors_are_left_alone():
    mover = FakeMover(torch)
    mover.users = {"non_blocking"}
    move, calls = moves(mover)
    x = torch.ones(2)
    mover.batch(x)
    move(x[:1], "cuda:0")
    move(torch.ones(2), "cuda:0")
    assert calls == [(("cuda:0",), {}), (("cuda:0",), {})]


def test_put_on_and_off_leaves_the_methods_as_they_were():
    before = (vars(torch.Tensor).get("to"), vars(torch.Tensor).get("cuda"))
    mover = Mover(torch)
    mover.join("non_blocking")
    assert torch.Tensor.to in {torch._C.TensorBase.to}
    assert torch.ones(2).to(torch.float64).dtype == torch.float64
    mover.arrived([torch.ones(2)])
    mover.lift()
    assert vars(torch.Tensor).get("to") is before[0]
    mover.put_back()
    mover.leave("non_blocking")
    assert (vars(torch.Tensor).get("to"), vars(torch.Tensor).get("cuda")) == before


def test_it_comes_back_after_a_compilation_where_the_observer_underneath_rests_by_then():
    """While Dynamo compiles all wrappers are off. The observer may have been told to rest while ours lay over it."""
    observer, plain = Patches(), torch.Tensor.to
    observer.put(torch.Tensor, "to", lambda tensor, *args, **kwargs: plain(tensor, *args, **kwargs))
    scene = Scene(torch, "cpu")
    try:
        scene.mover.join("non_blocking")
        ours = vars(torch.Tensor)["to"]
        observer.rest()
        assert vars(torch.Tensor)["to"] is ours
        for _ in range(2):
            scene.lift()
            observer.lift()
            assert torch.Tensor.to is plain
            observer.put_back()
            scene.put_back()
            assert vars(torch.Tensor)["to"] is ours
    finally:
        scene.mover.leave("non_blocking")
        observer.take_off()
    assert "to" not in vars(torch.Tensor)


def test_what_stays_on_is_proved_anew():
    knob = NonBlocking()
    knob._scene = scene = Scene(torch, "cuda")
    scene.mover.made_non_blocking = 5
    assert knob.proof().status == "applied"
    knob.stays_on()
    assert knob.proof().code == "no-pinned-batch-was-moved"
    scene.mover.made_non_blocking = 6
    assert knob.proof().status == "applied"


def test_copies_that_the_script_itself_does_not_wait_for_are_its_own():
    mover = FakeMover(torch)
    mover.users = {"non_blocking"}
    move, calls = moves(mover)
    x = torch.ones(2)
    mover.batch(x)
    move(x, "cuda:0", non_blocking=True)
    assert (mover.made_non_blocking, mover.own_non_blocking) == (0, 1)
    assert calls == [(("cuda:0",), {"non_blocking": True})]
    assert NonBlocking()._seen(mover, 0).told() == {"status": "already", "code": "script-set-it", "details": {}}
    assert NonBlocking()._seen(mover, 3).status == "applied"
