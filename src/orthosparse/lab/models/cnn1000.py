"""The plain convolutional network of 1000 layers, with circular padding."""

from collections import OrderedDict

from torch import nn

from orthosparse.lab.models._parts import activation_named, at_least, check_sides


def cnn1000(
    *, classes: int, in_shape: tuple[int, int, int], activation: str = "tanh", depth: int = 1000, width: int = 128
) -> nn.Module:
    """Return ``depth - 3`` convolutions (``conv1`` ...), an average pool and a linear layer.

    The paper counts the pool, the flattening and the linear layer: 1000 layers are 997 convolutions. The second and the
    third have stride 2; all are 3 x 3 with circular padding and a bias, each followed by its activation. Nothing stands
    between the pool and the linear layer.
    """
    at_least("depth", depth, 6)
    at_least("width", width, 1)
    channels, height, width_in = in_shape
    # Two convolutions of stride 2 round up, the pool rounds down.
    last = (-(-height // 4) // 2, -(-width_in // 4) // 2)
    check_sides("cnn1000", in_shape, last)
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    for index in range(1, depth - 2):
        stride = 2 if index in (2, 3) else 1
        inputs = channels if index == 1 else width
        modules[f"conv{index}"] = nn.Conv2d(inputs, width, 3, stride, padding=1, padding_mode="circular")
        modules[f"act{index}"] = activation_named(activation)
    modules["pool"] = nn.AvgPool2d(2)
    modules["flatten"] = nn.Flatten()
    modules["fc"] = nn.Linear(width * last[0] * last[1], classes)
    return nn.Sequential(modules)
