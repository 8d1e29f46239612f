"""The fastest form of each layer, chosen by times."""

import pytest
import torch
from torch import fx, nn

from orthosparse.deploying import choosing
from orthosparse.deploying.choosing import choose, keep_features_first
from orthosparse.deploying.modules import EntriesLinear
from orthosparse.progress import silent


def sparse_pair(generator):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).requires_grad_(False)
    for layer in (model[0], model[2]):
        layer.weight.mul_(torch.rand(8, 8, generator=generator) < 0.3)
    return model


def timed(monkeypatch, **times):
    monkeypatch.setattr(choosing, "seconds_in_turn", lambda calls, *_, **__: {name: times[name] for name in calls})


def chosen(model, x=None, tolerance=1e-4):
    return choose(model, ((torch.ones(2, 8) if x is None else x,), {}), tolerance, silent)


def test_the_fastest_form_is_put_in_place(generator, monkeypatch):
    timed(monkeypatch, dense=1.0, entries=0.5)
    model, x = sparse_pair(generator), torch.ones(2, 8)
    expected = model(x)
    rows = chosen(model)
    assert [row.form for row in rows] == ["entries", "entries"]
    assert [row.ratio for row in rows] == [2.0, 2.0]
    assert isinstance(model[0], EntriesLinear)
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("entries", [0.93, 1.5])
def test_a_form_that_gains_less_than_a_tenth_is_refused_with_its_time(entries, generator, monkeypatch):
    timed(monkeypatch, dense=1.0, entries=entries)
    model = sparse_pair(generator)
    rows = chosen(model)
    assert [row.form for row in rows] == ["dense", "dense"]
    assert rows[0].note == f"entries takes {entries:.2f}x the time"
    assert type(model[0]) is nn.Linear


def test_a_form_whose_outputs_differ_is_refused(generator, monkeypatch):
    timed(monkeypatch, dense=1.0, entries=0.1)
    monkeypatch.setattr(EntriesLinear, "forward", lambda self, x: x + 1)
    rows = chosen(sparse_pair(generator))
    assert [row.form for row in rows] == ["dense", "dense"]
    assert rows[0].note.startswith("entries: outputs differ by ")


def test_layers_are_measured_on_what_chosen_layers_before_them_return(monkeypatch):
    shapes = []

    def seconds(calls, *_, **__):
        shapes.append([call().shape for call in calls.values()])
        return dict.fromkeys(calls, 1.0)

    monkeypatch.setattr(choosing, "seconds_in_turn", seconds)
    model = nn.Sequential(nn.Linear(8, 6), nn.Unflatten(1, (2, 3)), nn.Linear(3, 4))
    chosen(model.requires_grad_(False))
    assert shapes == [[(2, 6)], [(2, 2, 4)]]


def test_an_error_leaves_the_layers_in_place(generator):
    model = sparse_pair(generator)
    with pytest.raises(ValueError, match="example"):
        chosen(model, torch.ones(2, 7))
    assert type(model[0]) is nn.Linear


def test_the_memory_format_of_the_input_is_kept_unless_the_other_is_faster(generator, monkeypatch):
    layer = nn.Sequential(nn.Conv2d(4, 4, 3)).requires_grad_(False)
    x = torch.randn(1, 4, 8, 8, generator=generator)
    last = x.contiguous(memory_format=torch.channels_last)
    for times, given, form in [
        ({"dense": 1.0, "dense channels-last": 0.93}, x, "dense"),
        ({"dense": 1.0, "dense channels-last": 0.8}, x, "dense channels-last"),
        ({"dense": 0.93, "dense channels-last": 1.0}, last, "dense channels-last"),
    ]:
        timed(monkeypatch, **times)
        assert chosen(layer, given)[0].form == form


def entries(inputs, outputs):
    return EntriesLinear(nn.Linear(inputs, outputs).requires_grad_(False))


class Leaves(fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, EntriesLinear) or super().is_leaf_module(module, name)


def traced(model):
    return fx.GraphModule(model, Leaves().trace(model))


def test_results_lie_features_first_between_layers_of_entries_alone():
    graph = traced(nn.Sequential(entries(6, 5), nn.ReLU(), entries(5, 4), nn.Softmax(-1), entries(4, 3)))
    x = torch.randn(7, 6)
    expected = graph(x)
    keep_features_first(graph)
    assert [graph.get_submodule(name).features_first for name in ("0", "2", "4")] == [True, False, False]
    torch.testing.assert_close(graph(x), expected)


def test_a_result_that_something_else_reads_too_is_contiguous():
    class Branched(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = entries(4, 4), entries(4, 4)

        def forward(self, x):
            y = self.one(x)
            return y + self.two(y.relu())

    graph = traced(Branched())
    keep_features_first(graph)
    assert not graph.get_submodule("one").features_first
