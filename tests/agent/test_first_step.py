"""What the agent tells of one step's gradients, for optimizers and parameters of every kind."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.optim import optimizer as optimizers

from _flatout_agent.modes.first_step_gradients import MOST, FirstStep, other_draws


class Training:
    """A loop by hand; `losses` counts as the agent does, at each backward pass."""

    def __init__(self):
        self.losses = 0

    def look(self, *stepping):
        return FirstStep(torch, lambda: self.losses, list(stepping))

    def backward(self, loss):
        self.losses += 1
        loss.backward()


@pytest.fixture
def training():
    hooks = dict(optimizers._global_optimizer_pre_hooks)
    yield Training()
    assert dict(optimizers._global_optimizer_pre_hooks) == hooks, "a hook was left"


def test_what_is_told_is_the_gradient_before_the_step(training):
    """Nesterov's step writes its momentum into the gradients."""
    layer = nn.Linear(3, 2)
    sgd = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9, nesterov=True, foreach=True)
    for _ in range(2):
        sgd.zero_grad()
        training.backward(layer(torch.randn(4, 3)).square().sum())
        true = [parameter.grad.clone() for parameter in layer.parameters()]
        look = training.look(sgd) if training.losses == 2 else None
        if look is not None:
            look._begun -= 1  # the loss is there already: as if the look had begun before it
        sgd.step()
    assert look.ended()
    told = look.told()
    assert told["sample"] == [gradient.flatten().tolist() for gradient in true]
    assert told["norms"] == pytest.approx([gradient.norm().item() for gradient in true])


def test_of_a_large_parameter_some_numbers_that_fall_into_no_column(training):
    layer = nn.Linear(784, 512, bias=False)
    sgd = torch.optim.SGD(layer.parameters(), lr=0.1)
    look = training.look(sgd)
    inputs = torch.zeros(8, 784)
    inputs[:, 300:] = 1.0  # corners of pictures are black
    training.backward(layer(inputs).sum())
    sgd.step()
    (sample,) = look.told()["sample"]
    assert 200 <= len(sample) <= MOST
    assert 0.4 < sum(number != 0 for number in sample) / len(sample) < 0.8


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.bfloat16])
def test_numbers_of_every_kind(dtype, training):
    parameter = nn.Parameter(torch.ones(4, dtype=dtype))
    frozen = nn.Parameter(torch.ones(2))
    sgd = torch.optim.SGD([parameter, frozen], lr=0.1, foreach=False)
    look = training.look(sgd)
    training.backward((parameter * 2).abs().sum())
    sgd.step()
    told = look.told()
    assert told["norms"] == [pytest.approx(4.0), None]
    assert sum(number**2 for number in told["sample"][0]) == pytest.approx(16.0)
    assert told["sample"][1] == []


def test_a_sparse_gradient(training):
    table = nn.Embedding(100, 4, sparse=True)
    sgd = torch.optim.SGD(table.parameters(), lr=0.1)
    look = training.look(sgd)
    training.backward(table(torch.tensor([1, 2, 2])).sum())
    sgd.step()
    told = look.told()
    assert told["norms"] == [pytest.approx((4 * 1 + 4 * 4) ** 0.5)]


def test_gradients_that_a_closure_makes_inside_the_step(training):
    layer = nn.Linear(2, 1, bias=False)
    adam = torch.optim.Adam(layer.parameters())
    layer.weight.grad = torch.full_like(layer.weight, 7.0)  # of the batch before
    look = training.look(adam)

    def closure():
        adam.zero_grad()
        training.backward(loss := layer(torch.ones(1, 2)).sum())
        return loss

    adam.step(closure)
    assert look.ended()
    assert look.told()["sample"] == [[1.0, 1.0]]


def test_a_line_search_has_no_gradient_of_one_place(training):
    layer = nn.Linear(2, 1, bias=False)
    search = torch.optim.LBFGS(layer.parameters(), max_iter=3)
    look = training.look(search)

    def closure():
        search.zero_grad()
        training.backward(loss := layer(torch.ones(1, 2)).square().sum())
        return loss

    search.step(closure)
    assert look.ended()
    assert look.told()["norms"] == []


def test_every_optimizer_once_and_none_on_the_batch_before(training):
    """Knobs go on between the steps of two optimizers: the second one's gradients are still the old batch's."""
    body, head = nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)
    one, other = (torch.optim.SGD(part.parameters(), lr=0.0) for part in (body, head))
    training.backward(head(body(torch.ones(1, 2))).sum())
    one.step()
    look = training.look(one, other)
    other.step()
    assert not look.ended()
    for part in (body, head):
        part.weight.grad = None
    training.backward(head(body(torch.full((1, 2), 3.0))).sum())
    new = [part.weight.grad.flatten().tolist() for part in (body, head)]
    one.step()
    assert not look.ended()
    other.step()
    assert look.ended()
    assert look.told()["sample"] == new


def test_an_optimizer_that_never_steps_again_is_not_waited_for(training):
    layer = nn.Linear(2, 1)
    first, done = (torch.optim.SGD(layer.parameters(), lr=0.0) for _ in range(2))
    look = training.look(first, done)
    ends = []
    for _ in range(20):
        training.backward(layer(torch.ones(1, 2)).sum())
        first.step()
        ends.append(look.ended())
    assert not any(ends[:3])
    assert ends[-1]
    assert len(look.told()["norms"]) == 2


def test_a_gradient_that_cannot_be_told_is_no_fault(training, monkeypatch):
    layer = nn.Linear(2, 1)
    sgd = torch.optim.SGD(layer.parameters(), lr=0.1)
    look = training.look(sgd)
    training.backward(layer(torch.ones(1, 2)).sum())
    sgd.step()
    look._parts = [object()]  # as a tensor subclass that has no numbers of its own
    assert look.told() is None


def test_other_draws_come_in_the_model_and_not_in_the_batch():
    def passes(number):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Dropout(0.5))
        other_draws(torch, [net], number)
        return [torch.randn(3).tolist(), net(torch.ones(64)).tolist()]

    plain, again, other = passes(0), passes(0), passes(1)
    assert plain == again
    assert other[0] == plain[0]
    assert other[1] != plain[1]
