"""VGG-16, variant C, for small images."""

from collections import OrderedDict

from torch import nn

from orthosparse.lab.models._parts import activation_named, check_sides

# (channels, kernel) of the convolutions between the pools.
_STAGES = (
    ((64, 3), (64, 3)),
    ((128, 3), (128, 3)),
    ((256, 3), (256, 3), (256, 1)),
    ((512, 3), (512, 3), (512, 1)),
    ((512, 3), (512, 3), (512, 1)),
)


def vgg16c(*, classes: int, in_shape: tuple[int, int, int], activation: str = "relu", hidden: int = 512) -> nn.Module:
    """Return 13 convolutions (``features``) and 3 linear layers (``classifier``), batch-normalised, without dropout.

    Every convolution has padding 1, the 1 x 1 ones too: those grow the map by 2, and the maps of a 32 x 32 image have
    sides 32, 16, 8 to 10, 5 to 7, 3 to 5 and, after the last pool, 2.
    """
    last = (_last_side(in_shape[1]), _last_side(in_shape[2]))
    check_sides("vgg16c", in_shape, last)
    features: OrderedDict[str, nn.Module] = OrderedDict()
    inputs = in_shape[0]
    for stage, convolutions in enumerate(_STAGES, 1):
        for index, (outputs, kernel) in enumerate(convolutions, 1):
            features[f"conv{stage}_{index}"] = nn.Conv2d(inputs, outputs, kernel, padding=1)
            features[f"bn{stage}_{index}"] = nn.BatchNorm2d(outputs)
            features[f"act{stage}_{index}"] = activation_named(activation)
            inputs = outputs
        features[f"pool{stage}"] = nn.MaxPool2d(2)
    head = _head(inputs * last[0] * last[1], hidden, classes, activation)
    return nn.Sequential(OrderedDict(features=nn.Sequential(features), flatten=nn.Flatten(), classifier=head))


def _head(inputs: int, hidden: int, classes: int, activation: str) -> nn.Module:
    head: OrderedDict[str, nn.Module] = OrderedDict()
    for index, size in ((1, inputs), (2, hidden)):
        head[f"fc{index}"] = nn.Linear(size, hidden)
        head[f"act{index}"] = activation_named(activation)
        head[f"bn{index}"] = nn.BatchNorm1d(hidden)
    head["fc3"] = nn.Linear(hidden, classes)
    return nn.Sequential(head)


def _last_side(side: int) -> int:
    for convolutions in _STAGES:
        side = (side + 2 * sum(kernel == 1 for _, kernel in convolutions)) // 2
    return side
