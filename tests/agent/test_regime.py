"""What the graph behind a loss tells of the precision that the model computes in."""

import pytest

torch = pytest.importorskip("torch")

from _flatout_agent.timeline.hooks.precision_and_device import of_graph


class Doubled(torch.autograd.Function):
    """As compiled code and replayed CUDA graphs look to autograd: one node, with all that is inside it."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def loss_of(x, autocast=False, opaque=False):
    model = torch.nn.Linear(4, 2)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = model(x)
    return (Doubled.apply(out) if opaque else out).float().sum()


def test_casts_show_in_the_graph():
    x = torch.ones(3, 4)
    assert of_graph(loss_of(x)) == {"autocast": False, "compiled": False}
    assert of_graph(loss_of(x, autocast=True)) == {"autocast": True, "compiled": False}


def test_nothing_is_said_of_autocast_where_a_function_may_hide_it():
    x = torch.ones(3, 4)
    assert "autocast" not in of_graph(loss_of(x, opaque=True))
    assert of_graph(loss_of(x, autocast=True, opaque=True))["autocast"] is True


def test_compiled_code_hides_casts():
    model = torch.compile(torch.nn.Linear(4, 2), backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.ones(3, 4)).float().sum()
    told = of_graph(loss)
    assert told["compiled"] is True
    assert told.get("autocast") is not False
