"""What is compiled with CUDA graphs validates by recorded graphs, with the very bits of the plain pass."""

import pytest
import torch
from taped import Here
from torch import nn

from _flatout_agent.knobs.compile import CompileLayer
from _flatout_agent.knobs.graphs.evaluation_graphs import CALLS_BEFORE, EvaluationGraphs
from _flatout_agent.knobs.graphs.graph_guards import Attributes
from _flatout_agent.knobs.module_wrapper import Wardrobe


class Waiting(nn.Linear):
    """Asks for a number: cannot be recorded."""

    def forward(self, x):
        return super().forward(x) * (1.0 if bool(x.sum() > 0) else 0.5)


@pytest.fixture
def compiled():
    attributes, recorder = Attributes(torch), Here(torch)

    def put_on(model):
        def only_in_training(*_, **__):
            raise AssertionError("validation is not compiled")

        layer = CompileLayer(torch, only_in_training, None, EvaluationGraphs(torch, recorder, attributes))
        outfit = Wardrobe(torch).outfit(model)
        outfit.wear(layer)
        return layer

    yield put_on, recorder
    attributes.take_off()


def validated(model, inputs):
    model.eval()
    with torch.no_grad():
        return [model(x) for x in inputs]


def test_validation_is_replayed_with_the_same_bits(compiled):
    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)), [torch.randn(3, 6) for _ in range(20)]
    plain = validated(model, inputs)
    layer = compiled[0](model)
    assert all(torch.equal(one, own) for one, own in zip(validated(model, inputs), plain, strict=True))
    assert layer.evaluations == len(inputs) - CALLS_BEFORE - 1


def test_what_cannot_be_recorded_leaves_the_generator_as_other_graphs_know_it(compiled):
    model, inputs = Waiting(6, 4), [torch.randn(3, 6) for _ in range(20)]
    plain = validated(model, inputs)
    put_on, recorder = compiled
    layer = put_on(model)
    assert all(torch.equal(one, own) for one, own in zip(validated(model, inputs), plain, strict=True))
    assert (layer.evaluations, recorder.mended) == (0, 0)
