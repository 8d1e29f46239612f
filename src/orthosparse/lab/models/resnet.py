"""The residual networks for small images, with projections as shortcuts (type B)."""

import torch
from torch import nn

from orthosparse.lab.models._parts import activation_named


class Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut; an activation after the first and after the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.act1 = activation_named(activation)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outputs))
        self.act2 = activation_named(activation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activated sum."""
        inner = self.act1(self.bn1(self.conv1(x)))
        out: torch.Tensor = self.act2(self.bn2(self.conv2(inner)) + self.shortcut(x))
        return out


class ResNet(nn.Module):
    """A convolution, three stages of 16, 32 and 64 channels, a global average and a linear layer."""

    def __init__(self, channels: int, classes: int, blocks: int, activation: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.act1 = activation_named(activation)
        self.layer1 = _stage(16, 16, blocks, 1, activation)
        self.layer2 = _stage(16, 32, blocks, 2, activation)
        self.layer3 = _stage(32, 64, blocks, 2, activation)
        self.fc = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = self.act1(self.bn1(self.conv1(x)))
        logits: torch.Tensor = self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))
        return logits


def _stage(inputs: int, outputs: int, blocks: int, stride: int, activation: str) -> nn.Sequential:
    first = Block(inputs, outputs, stride, activation)
    return nn.Sequential(first, *(Block(outputs, outputs, 1, activation) for _ in range(blocks - 1)))


def resnet(*, classes: int, in_shape: tuple[int, int, int], activation: str = "relu", depth: int) -> nn.Module:
    """Return the residual network of `depth` = 6 n + 2 layers, n blocks a stage."""
    blocks, remainder = divmod(depth - 2, 6)
    if remainder or blocks < 1:
        raise ValueError(f"depth: expected 6 n + 2 with n at least 1 (8, 14, 20, 32, 56, 110); got {depth}")
    return ResNet(in_shape[0], classes, blocks, activation)


def resnet32(*, classes: int, in_shape: tuple[int, int, int], activation: str = "relu") -> nn.Module:
    """Return the residual network of 32 layers."""
    return resnet(classes=classes, in_shape=in_shape, activation=activation, depth=32)


def resnet56(*, classes: int, in_shape: tuple[int, int, int], activation: str = "relu") -> nn.Module:
    """Return the residual network of 56 layers."""
    return resnet(classes=classes, in_shape=in_shape, activation=activation, depth=56)


def resnet110(*, classes: int, in_shape: tuple[int, int, int], activation: str = "relu") -> nn.Module:
    """Return the residual network of 110 layers."""
    return resnet(classes=classes, in_shape=in_shape, activation=activation, depth=110)
