"""What traces a model sees of the methods that we stand in. After these every step is seen whole, so they come last."""

import re
import warnings

import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return (x.to(torch.float64).cpu() + 1).relu()


def exported(training, steps):
    program = torch.export.export(Net(), (torch.ones(2),), strict=True)
    training.steps(3)
    return [[str(node.target) for node in program.graph.nodes], program.module()(torch.ones(2)).tolist()]


def traced_by_jit(training, steps):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        graph = torch.jit.trace(Net(), torch.ones(2)).graph
    training.steps(3)
    return re.sub(r"___torch_mangle_\d+\.", "", str(graph))


def compiled_ahead_of_time(training, steps):
    """By AOTAutograd alone, and, where torch has it, by what `torch.compile` makes of one example before any call."""
    from torch._functorch.aot_autograd import aot_function

    graphs = []

    def keep(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph

    results = [aot_function(Net().forward, fw_compiler=keep)(torch.ones(2)).tolist()]

    def whole(x):
        return (x.to(torch.float64).cpu() + 1).relu()

    compiled = torch.compile(whole, fullgraph=True, backend="aot_eager")
    if hasattr(compiled, "aot_compile"):
        results.append(compiled.aot_compile(((torch.ones(2),), {}))(torch.ones(2)).tolist())
    results.append(compiled(torch.ones(3)).tolist())
    training.steps(3)
    return [graphs, results]


def compiled_with_a_loop_without_loader(training, steps):
    """Without a loader hooks on modules count the inputs for some steps: Dynamo neither meets them nor is told of them."""
    from torch._dynamo.utils import counters
    from torch.nn.modules import module as modules

    torch._dynamo.reset()
    counters.clear()
    net, told = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(called):
        called(torch.ones(4, 4)).sum().backward()
        optimizer.step()
        told.append(getattr(modules, "_has_any_global_hook", bool)())

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(12):
            step(net)
        fast = torch.compile(net, backend="aot_eager")
        for _ in range(12):
            step(fast)
    counts = [dict(counters[name]) for name in ("stats", "graph_break", "recompiles")]
    return [told, counts, [str(warning.message) for warning in caught], [p.tolist() for p in net.parameters()]]
