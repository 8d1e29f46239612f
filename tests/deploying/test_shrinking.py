"""Dead units are removed, and the network computes what it did."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from deploying.models import images, network
from orthosparse.deploying.copies import inference_copy
from orthosparse.deploying.folding import LAYERS, fold_norms
from orthosparse.deploying.shrinking import shrink
from orthosparse.deploying.tracing import record_shapes, traced


def graph_of(model, x):
    graph, reason = traced(inference_copy(model, None), ((x,), {}), 0.0)
    assert graph is not None, reason
    return graph


def shrunk(model, x, *, split):
    graph = graph_of(model, x)
    fold_norms(graph)
    record_shapes(graph, ((x,), {}))
    return graph, shrink(graph, split=split)


@settings(max_examples=40)
@given(
    kind=st.sampled_from(["residual", "plain", "tokens"]),
    density=st.sampled_from([0.02, 0.1, 0.4]),
    dead=st.sampled_from([0.0, 0.2, 0.6]),
    split=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_outputs_stay_the_same(kind, density, dead, split, seed):
    generator = torch.Generator().manual_seed(seed)
    model, x = network(kind, generator, density=density, dead=dead), images(generator)
    graph, _ = shrunk(model, x, split=split)
    others = images(generator, batch=3)
    torch.testing.assert_close(graph(others), model.eval()(others), rtol=1e-9, atol=1e-9)


@settings(max_examples=30)
@given(kind=st.sampled_from(["residual", "plain"]), seed=st.integers(0, 2**16))
def test_split_every_layer_loses_its_dead_rows_and_columns(kind, seed):
    """One row and one column stay in an empty layer."""
    generator = torch.Generator().manual_seed(seed)
    model, x = network(kind, generator, shift=0.0), images(generator)
    before = {name: module.weight for name, module in model.named_modules() if type(module) in LAYERS}
    graph, _ = shrunk(model, x, split=True)
    after = {name: module for name, module in graph.named_modules() if type(module) in LAYERS}
    for name, module in after.items():
        if getattr(module, "groups", 1) > 1 or name == list(before)[-1]:
            continue
        live = (before[name] != 0).flatten(2).any(2) if before[name].dim() > 2 else before[name] != 0
        assert len(module.weight) <= max(1, int(live.any(1).sum())), name
        assert module.weight.shape[1] <= max(1, int(live.any(0).sum())), name


@settings(max_examples=30)
@given(kind=st.sampled_from(["residual", "plain"]), seed=st.integers(0, 2**16))
def test_unsplit_no_channels_are_selected_or_scattered(kind, seed):
    generator = torch.Generator().manual_seed(seed)
    graph, _ = shrunk(network(kind, generator), images(generator), split=False)
    targets = {node.target for node in graph.graph.nodes}
    assert not targets & {torch.index_select, torch.index_add}
    assert not any("spread" in str(target) for target in targets)


def test_without_dead_units_nothing_is_removed(generator):
    model, x = network("residual", generator, density=1.0, dead=0.0), images(generator)
    for split in (False, True):
        assert shrunk(model, x, split=split)[1] == {}


def test_a_constant_goes_into_the_next_bias():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]))
        model[0].bias.copy_(torch.tensor([0.0, 3.0, -5.0]))
        model[2].weight.copy_(torch.tensor([[1.0, 10.0, 100.0]]))
        model[2].bias.fill_(0.5)
    graph, removed = shrunk(model, torch.ones(1, 2), split=False)
    assert removed == {"0": 2}
    assert graph.get_submodule("2").weight.tolist() == [[1.0]]
    assert graph.get_submodule("2").bias.tolist() == [30.5]  # 0.5 + 10 relu(3) + 100 relu(-5)


def test_a_constant_that_meets_padding_keeps_its_channel():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Conv2d(2, 1, 3, padding=1))
    with torch.no_grad():
        model[0].weight[1], model[0].bias[1] = 0, 2.0
    x = torch.randn(1, 1, 4, 4)
    graph, removed = shrunk(model, x, split=True)
    assert removed == {}
    torch.testing.assert_close(graph(x), model(x))
    with torch.no_grad():
        model[0].bias[1] = 0
    assert shrunk(model, x, split=True)[1] == {"0": 1}


def test_a_layer_that_is_called_twice_stays_whole(generator):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.head(self.fc(self.fc(x).relu()).relu())

    model, x = Twice(), torch.randn(3, 6, generator=generator)
    with torch.no_grad():
        model.fc.weight[2:4] = 0
        model.fc.bias[2:4] = -1
    graph, removed = shrunk(model, x, split=True)
    assert "fc" not in removed
    torch.testing.assert_close(graph(x), model(x))


class Summed(nn.Module):
    """Sums of which one term is repeated: over positions, and over samples."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.context = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3), nn.Conv2d(6, 6, 1)
        self.offset, self.head = nn.Parameter(torch.ones(1, 6, 4, 4)), nn.Linear(6, 2)

    def forward(self, x):
        x = self.first(x)
        x = self.second(x + self.context(x.mean((2, 3), keepdim=True))) + self.offset
        return self.head(x.square().mean((2, 3)))


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("dead", [["first"], ["second"], ["context"], ["first", "second"]], ids=str)
def test_a_term_of_a_sum_is_repeated_for_any_batch(split, dead, generator):
    for channels in (2, 6):  # some or all of them constant
        model, x = Summed().double(), torch.randn(1, 3, 6, 6, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            for name in dead:
                model.get_submodule(name).weight[:channels] = 0
        graph, _ = shrunk(model, x, split=split)
        others = torch.randn(3, 3, 6, 6, generator=generator, dtype=torch.float64)
        torch.testing.assert_close(graph(others), model(others))


class Overwritten(nn.Module):
    """Tensors that are changed in place, and read afterwards by the name that they had before."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.same, self.relu = nn.Identity(), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.first(x)
        y = self.second(self.relu(self.same(x)))
        z = functional.hardtanh(y, inplace=True)
        y.add_(x)
        return self.head(x + y.sigmoid_() + z)


@pytest.mark.parametrize("split", [True, False])
def test_a_tensor_that_was_changed_in_place_has_the_constants_of_the_change(split, generator):
    model, x = Overwritten().double(), torch.randn(2, 4, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        model.first.weight[:4], model.first.bias[:4] = 0, -1  # 0 after the ReLU
        model.second.weight[2:] = 0
    graph, removed = shrunk(model, x, split=split)
    assert removed
    torch.testing.assert_close(graph(x), model(x))


def test_the_graph_can_be_copied_and_its_state_loaded(generator):
    model, x = network("residual", generator), images(generator)
    graph, _ = shrunk(model, x, split=True)
    twin = copy.deepcopy(graph)
    twin.load_state_dict(graph.state_dict())
    assert torch.equal(twin(x), graph(x))


@pytest.mark.parametrize("split", [False, True])
def test_a_network_whose_output_is_constant_still_runs(split, generator):
    model, x = network("residual", generator, density=0.0), images(generator)
    graph, _ = shrunk(model, x, split=split)
    torch.testing.assert_close(graph(x), model.eval()(x))
