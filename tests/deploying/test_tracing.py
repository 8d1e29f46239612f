"""Graphs of models for inference."""

import pickle

import pytest
import torch
from torch import nn

from deploying.models import images, network
from orthosparse.deploying.copies import inference_copy
from orthosparse.deploying.tracing import calls_of, record_shapes, shape_of, traced


def test_what_does_nothing_in_eval_mode_is_dropped():
    class Checked(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.drop, self.same = nn.Linear(4, 4), nn.Dropout(0.5), nn.Identity()

        def forward(self, x):
            torch._assert(x.shape[1] == 4, "four features")
            return self.same(self.drop(self.fc(x)))

    graph, _ = traced(inference_copy(Checked(), None), ((torch.ones(1, 4),), {}), 0.0)
    assert [node.op for node in graph.graph.nodes] == ["placeholder", "call_module", "output"]


def test_shapes_are_those_of_the_example(generator):
    graph, _ = traced(inference_copy(network("plain", generator), None), ((images(generator),), {}), 0.0)
    assert [shape_of(node) for node in graph.graph.nodes][-2:] == [(2, 5), (2, 5)]
    record_shapes(graph, ((images(generator, batch=7),), {}))
    assert shape_of(calls_of(graph)["0"][0]) == (7, 10, 6, 6)


class Optional(nn.Module):
    """Takes arguments of all kinds, most of which have defaults."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, scale=2.0, mask=None, sizes=(3.0, {"k": 1.0}), *rest, shift=True, **named):
        y = self.fc(x) * scale * sizes[0] + sizes[1]["k"]
        y = y if mask is None else y * mask
        for each in (*rest, *named.values()):
            y = y + each
        return y + 1 if shift else y


@pytest.mark.parametrize(
    ("args", "kwargs", "names"),
    [
        (1, {}, ["x"]),
        (2, {}, ["x", "scale"]),
        (3, {}, ["x", "scale", "mask"]),
        (1, {"mask": torch.arange(4.0)}, ["x", "mask"]),
        (6, {}, ["x", "scale", "mask", "sizes", "rest_0", "rest_1"]),
        (1, {"other": torch.ones(4)}, ["x", "other"]),
    ],
)
def test_the_graph_takes_the_arguments_of_the_example_and_no_others(args, kwargs, names, generator):
    model, x = inference_copy(Optional(), None), torch.randn(2, 4, generator=generator)
    example = (x, 3.0, torch.ones(4), (1.0, {"k": 2.0}), 5.0, 6.0)[:args]
    graph, reason = traced(model, (example, kwargs), 0.0)
    assert not reason
    assert [node.target for node in graph.graph.nodes if node.op == "placeholder"] == names
    assert torch.equal(graph(*example, **kwargs), model(*example, **kwargs))
    unpickled = pickle.loads(pickle.dumps(graph))  # noqa: S301
    assert torch.equal(unpickled(*example, **kwargs), model(*example, **kwargs))
    with pytest.raises(TypeError):
        graph(*example, **kwargs, unknown=1.0)
    if args < 6:
        with pytest.raises(TypeError):
            graph(*example, torch.zeros(4), **kwargs)


def test_an_argument_that_is_none_keeps_a_model_from_being_traced():
    model = inference_copy(Optional(), None)
    graph, reason = traced(model, ((torch.ones(2, 4),), {"mask": None}), 0.0)
    assert graph is None
    assert reason.startswith("its torch.fx trace fails: TypeError: ")


def test_a_model_that_cannot_be_traced_says_why(generator):
    graph, reason = traced(inference_copy(network("branching", generator), None), ((images(generator),), {}), 0.0)
    assert graph is None
    assert reason.startswith("cannot be traced by torch.fx: TraceError: ")


def test_a_trace_that_took_another_branch_is_refused():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            return self.fc(x) if isinstance(x, torch.Tensor) else self.fc(x) + 1

    graph, reason = traced(inference_copy(Named(), None), ((torch.ones(1, 2),), {}), 1e-6)
    assert graph is None
    assert reason == "its torch.fx trace computes something else"


def test_a_module_that_is_not_registered_cannot_be_traced():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.after = nn.Linear(2, 2), [nn.ReLU()]

        def forward(self, x):
            return self.after[0](self.fc(x))

    graph, reason = traced(inference_copy(Hidden(), None), ((torch.ones(1, 2),), {}), 0.0)
    assert graph is None
    assert reason == "cannot be traced by torch.fx: NameError: module is not installed as a submodule"


class Changing(nn.Module):
    """A network whose `change` is a part of its forward pass."""

    def __init__(self, change):
        super().__init__()
        self.change = change
        self.first, self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.relu, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        return self.change(self, self.first(x), x)


def view_then_clamp(m, h, x):
    g = h.view(-1, 2, 4)
    h.clamp_(-20, 20)
    return m.last(g.flatten(1))


def view_then_clamp_and_read_both(m, h, x):
    g = h.view(-1, 2, 4)
    return m.second(h.clamp_(-20, 20)).sum() + m.last(g.flatten(1))


def view_then_fill(m, h, x):
    g = h.view(-1, 2, 4)
    h.masked_fill_(x > 20, 0)
    return m.last(g.flatten(1))


def chunks_then_relu(m, h, x):
    h = h + 20
    chunks = h.chunk(2, 1)
    h.relu_()
    return m.last(torch.cat([chunks[0], chunks[1]], 1))


def relu_of_a_chunk(m, h, x):
    h = h + 20
    h.chunk(2, 1)[0].relu_()
    return m.last(h)


def relu_module(m, h, x):
    return m.last(m.relu(h))


def relu_of_a_name(m, h, x):
    m.relu(h)
    h.tanh_()
    return m.last(h)


def relu_of_a_view(m, h, x):
    return m.last(m.relu(h.view(-1, 2, 4)).flatten(1))


def relu_after_an_unread_view(m, h, x):
    h.view(-1, 2, 4)
    return m.last(m.relu(h))


def sum_in_place(m, h, x):
    h += x
    return m.last(m.relu(m.second(h).add_(h)))


def dropout_in_place(m, h, x):
    g = h.view(-1, 2, 4)
    return m.last(m.drop(h) + g.flatten(1))


def gate_of_the_other_half(m, h, x):
    values, gates = h[:, :4], h[:, 4:]
    return m.last(torch.cat([values * gates.sigmoid_()] * 2, 1))


def copy_then_relu(m, h, x):
    g = h.clone()
    return m.last(m.relu(h) + g)


def count_of_calls(m, h, x):
    m.calls.add_(1)
    return m.last(h)


def clamp_into_a_view(m, h, x):
    g = h.view(-1, 2, 4)
    torch.clamp(h, -20, 20, out=g.flatten(1))
    return m.last(h)


@pytest.mark.parametrize(
    "change",
    [
        view_then_clamp, view_then_clamp_and_read_both, view_then_fill, chunks_then_relu, relu_of_a_chunk,
        clamp_into_a_view,
    ],
)  # fmt: skip
def test_a_change_in_place_that_is_read_through_a_view_is_refused(change, generator):
    x = torch.rand(2, 8, generator=generator)  # so small that nothing is changed
    graph, reason = traced(inference_copy(Changing(change), None), ((x,), {}), 1e-6)
    assert graph is None
    assert reason == "changes a tensor in place and reads it through a view"


@pytest.mark.parametrize(
    "change",
    [
        relu_module, relu_of_a_name, relu_of_a_view, relu_after_an_unread_view, sum_in_place, dropout_in_place,
        gate_of_the_other_half, copy_then_relu, count_of_calls,
    ],
)  # fmt: skip
def test_a_change_in_place_that_no_view_reads_is_traced(change, generator):
    model, (x, other) = Changing(change).eval(), torch.randn(2, 2, 8, generator=generator)
    graph, reason = traced(inference_copy(model, None), ((x,), {}), 1e-6)
    assert reason == ""
    torch.testing.assert_close(graph(20 * other), model(20 * other))
