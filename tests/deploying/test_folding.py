"""Batch norms folded into the layers beside them."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from deploying.models import images, network
from orthosparse.deploying.copies import inference_copy
from orthosparse.deploying.folding import fold_norms, pads
from orthosparse.deploying.tracing import traced


def folded(model, x):
    graph, reason = traced(inference_copy(model, None), ((x,), {}), 0.0)
    assert graph is not None, reason
    return graph, fold_norms(graph)


def norms_with_statistics(model, generator):
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            for tensor in (module.running_mean, *module.parameters()):
                tensor.data.normal_(generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
    return model.double()


@pytest.mark.parametrize("kind", ["residual", "plain"])
def test_every_norm_of_usual_networks_but_one_before_padding_is_folded(kind, generator):
    model, x = network(kind, generator), images(generator)
    graph, number = folded(model, x)
    left = sum(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in graph.modules())
    assert (number, left) == {"residual": (4, 0), "plain": (2, 1)}[kind]
    torch.testing.assert_close(graph(x), model.eval()(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ((nn.Conv2d(4, 6, 3, groups=2, padding=1), nn.BatchNorm2d(6)), (2, 4, 5, 5)),
        ((nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3, groups=2)), (2, 4, 5, 5)),
        ((nn.BatchNorm1d(4), nn.Linear(4, 3, bias=False)), (2, 4)),
        ((nn.Linear(4, 3, bias=False), nn.BatchNorm1d(3, affine=False)), (2, 4)),
        ((nn.Conv1d(4, 3, 2), nn.BatchNorm1d(3)), (2, 4, 6)),
        ((nn.BatchNorm3d(2), nn.Conv3d(2, 3, 1)), (2, 2, 3, 3, 3)),
    ],
)
def test_a_norm_before_or_after_a_layer_is_folded(layers, shape, generator):
    model = norms_with_statistics(nn.Sequential(*layers), generator)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    graph, number = folded(model, x)
    assert number == 1
    torch.testing.assert_close(graph(x), model.eval()(x))


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ((nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3, padding=1)), (2, 4, 5, 5)),
        ((nn.Linear(4, 4), nn.BatchNorm1d(3)), (2, 3, 4)),  # the norm sees the middle side
        ((nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)), (2, 4)),
        ((nn.Linear(4, 3), nn.ReLU(), nn.BatchNorm1d(3), nn.ReLU()), (2, 4)),
    ],
)
def test_a_norm_that_cannot_be_folded_exactly_stays(layers, shape, generator):
    model = norms_with_statistics(nn.Sequential(*layers), generator)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    graph, number = folded(model, x)
    assert number == 0
    torch.testing.assert_close(graph(x), model.eval()(x))


def test_a_norm_called_as_a_function_is_folded(generator):
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)

        def forward(self, x):
            norm = self.norm
            own = norm.running_mean, norm.running_var, norm.weight, norm.bias
            return functional.batch_norm(self.fc(x), *own, False, 0.0, norm.eps)

    model = norms_with_statistics(Functional(), generator)
    x = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    graph, number = folded(model, x)
    assert number == 1
    torch.testing.assert_close(graph(x), model(x))


def test_a_layer_with_other_readers_or_tied_weights_keeps_its_norm(generator):
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.norm(self.one(x)) + self.two(x)

    model = norms_with_statistics(Shared(), generator)
    x = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    graph, number = folded(model, x)
    assert number == 0
    torch.testing.assert_close(graph(x), model.eval()(x))


def test_a_norm_whose_input_is_changed_in_place_before_the_layer_reads_stays(generator):
    class Changed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)

        def forward(self, x):
            x = self.first(x)
            y = self.norm(x)
            return x.clamp_(-2, 2) + 1, self.last(y)

    model = norms_with_statistics(Changed(), generator)
    graph, number = folded(model, torch.zeros(2, 4, dtype=torch.float64))
    assert number == 0
    x = 20 * torch.randn(3, 4, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(graph(x), model.eval()(x))


def test_only_zeros_around_a_picture_count_as_padding():
    assert pads(nn.Conv2d(1, 1, 3, padding=1))
    assert pads(nn.Conv2d(1, 1, 3, padding="same"))
    assert not pads(nn.Conv2d(1, 1, 1, padding="same"))
    assert not pads(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"))
    assert not pads(nn.Linear(1, 1))
