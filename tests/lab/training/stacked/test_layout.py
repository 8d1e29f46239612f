"""What is read off a residual network: every convolution in one place, equal ones side by side."""

from collections import Counter

import pytest
from torch import nn

from orthosparse.lab.models import ACTIVATIONS, build
from orthosparse.lab.models.stages import Grid
from orthosparse.lab.training.stacked.residual import BlockLayout, LayerIndex, layout_of

IMAGES = (3, 32, 32)
LEARNING = (nn.Conv2d, nn.BatchNorm2d, nn.Linear)


def network_of(name, shape, generator, **options):
    return build(name, classes=10, in_shape=shape, generator=generator, **options)


def test_thirty_two_layers_are_eight_stages_of_equal_convolutions_and_a_head(generator):
    layout = layout_of(network_of("resnet32", IMAGES, generator), IMAGES)
    found = [(stage.inputs, stage.outputs, stage.grid, len(stage.names)) for stage, _ in layout.stages]
    assert found == [
        (3, 16, Grid(32, 32, 3, 1, circular=False), 1),
        (16, 16, Grid(32, 32, 3, 1, circular=False), 10),
        (16, 32, Grid(32, 32, 3, 2, circular=False), 1),
        (32, 32, Grid(16, 16, 3, 1, circular=False), 9),
        (16, 32, Grid(32, 32, 1, 2, circular=False), 1),
        (32, 64, Grid(16, 16, 3, 2, circular=False), 1),
        (64, 64, Grid(8, 8, 3, 1, circular=False), 9),
        (32, 64, Grid(16, 16, 1, 2, circular=False), 1),
    ]
    head = layout.head
    assert (head.names, head.inputs, head.outputs, head.grid) == (("fc",), 64, 10, None)
    assert (layout.positions, layout.activation) == (64, "relu")
    assert all((norms.eps, norms.momentum) == (1e-5, 0.1) for _, norms in layout.stages)


def test_shortcuts_are_convolutions_where_channels_change_and_nowhere_else(generator):
    layout = layout_of(network_of("resnet32", IMAGES, generator), IMAGES)
    assert layout.stem == LayerIndex(0, 0)
    assert len(layout.blocks) == 15
    assert {place: block.shortcut for place, block in enumerate(layout.blocks) if block.shortcut is not None} == {
        5: LayerIndex(4, 0),
        10: LayerIndex(7, 0),
    }
    assert layout.blocks[0] == BlockLayout(LayerIndex(1, 0), LayerIndex(1, 1), None)
    assert layout.blocks[5] == BlockLayout(LayerIndex(2, 0), LayerIndex(3, 0), LayerIndex(4, 0))
    assert layout.blocks[6] == BlockLayout(LayerIndex(3, 1), LayerIndex(3, 2), None)
    assert layout.blocks[-1] == BlockLayout(LayerIndex(6, 7), LayerIndex(6, 8), None)


@pytest.mark.parametrize("name", ["resnet32", "resnet56"])
def test_every_convolution_and_normalisation_has_one_index_and_every_index_is_used_once(name, generator):
    network = network_of(name, IMAGES, generator)
    layout = layout_of(network, IMAGES)
    kinds = {kind: [n for n, module in network.named_modules() if type(module) is kind] for kind in LEARNING}
    assert Counter(n for stage, _ in layout.stages for n in stage.names) == Counter(kinds[nn.Conv2d])
    assert Counter(n for _, norms in layout.stages for n in norms.names) == Counter(kinds[nn.BatchNorm2d])
    assert list(layout.head.names) == kinds[nn.Linear]
    places = [layout.stem, *(place for block in layout.blocks for place in vars(block).values() if place is not None)]
    every = [
        LayerIndex(place, layer) for place, (stage, _) in enumerate(layout.stages) for layer in range(len(stage.names))
    ]
    assert Counter(places) == Counter(every)


def test_a_normalisation_stands_beside_the_convolution_before_it(generator):
    layout = layout_of(network_of("resnet32", IMAGES, generator), IMAGES)
    for stage, norms in layout.stages:
        for convolution, norm in zip(stage.names, norms.names, strict=True):
            assert norm == convolution.replace("conv", "bn").replace("shortcut.0", "shortcut.1")


def test_strides_round_odd_sides_up(generator):
    shape = (1, 9, 7)
    layout = layout_of(network_of("resnet32", shape, generator), shape)
    assert {(stage.grid.height, stage.grid.width) for stage, _ in layout.stages} == {(9, 7), (5, 4), (3, 2)}
    assert layout.positions == 6
    assert layout.stages[0][0].inputs == 1


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_activation_is_known_by_its_name(activation, generator):
    assert layout_of(network_of("resnet32", IMAGES, generator, activation=activation), IMAGES).activation == activation
