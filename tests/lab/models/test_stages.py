import pytest
import torch
from torch import nn

from orthosparse.lab.models import build
from orthosparse.lab.models.stages import Grid, Pool, Stage, as_rows, stages_of


def network_of(name, shape, generator, **options):
    return build(name, classes=10, in_shape=shape, generator=generator, **options)


def test_a_thousand_layers_are_three_runs(generator):
    first, middle, last = stages_of(network_of("mlp1000", (1, 28, 28), generator), (1, 28, 28))
    assert (first.inputs, first.outputs, first.activation) == (784, 128, "tanh")
    assert (len(middle.names), middle.names[0], middle.names[-1]) == (998, "fc2", "fc999")
    assert (last.names, last.activation) == (("fc1000",), "linear")


def test_a_convolutional_network_is_a_run_between_its_strides_and_its_pool(generator):
    stages = stages_of(network_of("cnn1000", (3, 32, 32), generator, depth=20, width=4), (3, 32, 32))
    kinds = [stage.grid if isinstance(stage, Stage) else stage for stage in stages]
    assert kinds == [
        Grid(32, 32, 3, 1),
        Grid(32, 32, 3, 2),
        Grid(16, 16, 3, 2),
        Grid(8, 8, 3, 1),
        Pool(4, 8, 8, 2),
        None,
    ]
    assert len(stages[3].names) == 14
    assert stages[-1].blocks == (4, 16)


def test_weights_in_rows_come_back_as_they_were(generator):
    stages = stages_of(network_of("cnn1000", (3, 8, 8), generator, depth=6, width=4), (3, 8, 8))
    for stage, shape in ((stages[0], (4, 3, 3, 3)), (stages[-1], (10, 4))):
        weight = torch.randn(shape, generator=generator)
        assert torch.equal(stage.weight_of(stage.rows_of(weight)), weight)


def test_pictures_lie_as_the_first_stage_reads_them(generator):
    images = torch.randn(2, 3, 4, 4, generator=generator)
    flat = stages_of(network_of("mlp", (3, 4, 4), generator), (3, 4, 4))
    assert torch.equal(as_rows(images, flat), images.flatten(1))
    maps = stages_of(network_of("cnn1000", (3, 8, 8), generator, depth=6, width=4), (3, 8, 8))
    assert torch.equal(as_rows(images, maps), images.permute(0, 2, 3, 1).flatten(1))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Linear(4, 4), "expected a plain sequence of layers; got Linear"),
        (nn.Sequential(nn.Flatten(), nn.Linear(16, 4, bias=False)), "expected a bias"),
        (nn.Sequential(nn.Conv2d(1, 2, 3, padding=0, padding_mode="circular")), "convolutions like 0"),
        (nn.Sequential(nn.Conv2d(1, 2, 2, padding=1, padding_mode="circular")), "convolutions like 0"),
        (nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.Dropout()), "networks that hold Dropout"),
        (nn.Sequential(nn.AvgPool2d(2, stride=1)), "pools like 0"),
    ],
)
def test_other_networks_are_refused(network, message):
    with pytest.raises(ValueError, match=message):
        stages_of(network, (1, 4, 4))


def test_vgg_is_normalised_layers_between_pools_and_a_plain_last_one(generator):
    stages = stages_of(network_of("vgg16c", (3, 32, 32), generator), (3, 32, 32))
    pools = [stage for stage in stages if isinstance(stage, Pool)]
    assert [(pool.channels, pool.height, pool.largest) for pool in pools] == [
        (64, 32, True),
        (128, 16, True),
        (256, 10, True),
        (512, 7, True),
        (512, 5, True),
    ]
    layers = [stage for stage in stages if isinstance(stage, Stage)]
    assert [stage.norms is not None for stage in layers] == [True] * 15 + [False]
    assert [stage.norm_last for stage in layers] == [False] * 13 + [True] * 2 + [False]
    assert {stage.grid.pad for stage in layers[:13]} == {1}
    assert layers[6].grid == Grid(8, 8, 1, 1, padding=1, circular=False)
    assert (layers[13].blocks, layers[13].names, layers[13].norms.names) == (
        (512, 4),
        ("classifier.fc1",),
        ("classifier.bn1",),
    )
