"""Plain perceptrons: 7 layers of width 100, and 1000 layers of width 128."""

import math
from collections import OrderedDict

from torch import nn

from orthosparse.lab.models._parts import activation_named, at_least


def mlp(
    *, classes: int, in_shape: tuple[int, int, int], activation: str = "relu", depth: int = 7, width: int = 100
) -> nn.Module:
    """Return `depth` linear layers with biases (``fc1`` ...), an activation after each but the last."""
    at_least("depth", depth, 2)
    at_least("width", width, 1)
    sizes = [math.prod(in_shape), *[width] * (depth - 1), classes]
    modules: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for index in range(1, depth + 1):
        modules[f"fc{index}"] = nn.Linear(sizes[index - 1], sizes[index])
        if index < depth:
            modules[f"act{index}"] = activation_named(activation)
    return nn.Sequential(modules)


def mlp1000(
    *, classes: int, in_shape: tuple[int, int, int], activation: str = "tanh", depth: int = 1000, width: int = 128
) -> nn.Module:
    """Return the perceptron of 1000 layers, 998 of them square."""
    return mlp(classes=classes, in_shape=in_shape, activation=activation, depth=depth, width=width)
