"""Copies of batches: which calls are touched and which are not, on a machine without a card."""

import pytest

torch = pytest.importorskip("torch")

from _flatout_agent.apply.moving import Mover


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
