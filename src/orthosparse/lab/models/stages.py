"""The shape of a sequential network, read off its modules: runs of equal layers, and pools."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from orthosparse.lab.models._parts import ACTIVATIONS

ACTIVATION_NAMES = {type(make()): name for name, make in ACTIVATIONS.items()}


@dataclass(frozen=True)
class Grid:
    """The geometry of a convolution: the feature map it gets, the side of its kernel, its stride and its padding.

    Attributes:
        padding: pixels on each side; None is half the kernel.
        circular: whether the map is padded by itself, or by zeros.
    """

    height: int
    width: int
    kernel: int
    stride: int
    padding: int | None = None
    circular: bool = True

    @property
    def pad(self) -> int:
        """Pixels on each side of the padded map."""
        return self.kernel // 2 if self.padding is None else self.padding

    @property
    def out_height(self) -> int:
        """Rows of the map it gives."""
        return (self.height + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of the map it gives."""
        return (self.width + 2 * self.pad - self.kernel) // self.stride + 1


@dataclass(frozen=True)
class Norms:
    """The batch normalisations of the layers of a stage: their names, and what they share."""

    names: tuple[str, ...]
    eps: float
    momentum: float


@dataclass(frozen=True)
class Stage:
    """A run of layers of one shape, each followed by the same activation.

    Samples lie as rows of ``positions * channels`` numbers, channels innermost; a weight as ``[out, taps * in]``.

    Attributes:
        names: of the modules, in order.
        inputs, outputs: channels.
        grid: of a convolution; None for a linear layer.
        blocks: a linear layer's inputs are a flattened map of (channels, positions); None where they are plain.
        norms: of a layer with a batch normalisation; None for layers without.
        norm_last: whether that comes after the activation, and not before it.
    """

    names: tuple[str, ...]
    inputs: int
    outputs: int
    grid: Grid | None = None
    blocks: tuple[int, int] | None = None
    activation: str = "linear"
    norms: Norms | None = None
    norm_last: bool = False

    @property
    def features(self) -> tuple[int, int]:
        """Numbers of a sample before and after a layer."""
        if self.grid is None:
            return self.inputs, self.outputs
        grid = self.grid
        return self.inputs * grid.height * grid.width, self.outputs * grid.out_height * grid.out_width

    @property
    def fan_in(self) -> int:
        """Columns of a weight."""
        return self.inputs * (1 if self.grid is None else self.grid.kernel**2)

    def rows_of(self, weight: Tensor) -> Tensor:
        """Return a module's weight (or mask) as ``[out, taps * in]``."""
        if self.grid is not None:
            return weight.permute(0, 2, 3, 1).reshape(self.outputs, self.fan_in)
        if self.blocks is not None:
            return weight.view(self.outputs, *self.blocks).transpose(1, 2).reshape(self.outputs, self.inputs)
        return weight

    def weight_of(self, rows: Tensor) -> Tensor:
        """Return what `rows_of` was given."""
        if self.grid is not None:
            side = self.grid.kernel
            return rows.view(self.outputs, side, side, self.inputs).permute(0, 3, 1, 2).contiguous()
        if self.blocks is not None:
            channels, positions = self.blocks
            return rows.view(self.outputs, positions, channels).transpose(1, 2).reshape(self.outputs, self.inputs)
        return rows


@dataclass(frozen=True)
class Pool:
    """Means or maxima over squares of a map; an incomplete square at the edges is left out, as torch does."""

    channels: int
    height: int
    width: int
    side: int
    largest: bool = False


def stages_of(network: nn.Module, in_shape: tuple[int, int, int]) -> list[Stage | Pool]:
    """Return the stages of a sequence of linear layers, convolutions, normalisations, activations and pools.

    Raises:
        ValueError: the network is anything else.
    """
    if not isinstance(network, nn.Sequential):
        raise ValueError(f"model: expected a plain sequence of layers; got {type(network).__name__}")
    reader = _Reader(*in_shape)
    for name, module in network.named_modules():
        if not isinstance(module, nn.Sequential):
            reader.read(name, module)
    return _merged(reader.stages)


class _Reader:
    """Follows the shape of a sample through the modules."""

    def __init__(self, channels: int, height: int, width: int) -> None:
        self.channels, self.height, self.width = channels, height, width
        self.flat: tuple[int, int] | None = None
        self.stages: list[Stage | Pool] = []

    def read(self, name: str, module: nn.Module) -> None:
        """Add what a module does."""
        if isinstance(module, nn.Flatten):
            # Images come with their channels outermost, maps have them innermost.
            self.flat = (self.channels, self.height * self.width) if self.stages else None
            self.channels, self.height, self.width = self.channels * self.height * self.width, 1, 1
        elif isinstance(module, nn.Linear):
            self._layer(module, Stage((name,), module.in_features, module.out_features, blocks=self.flat))
            self.flat = None
        elif isinstance(module, nn.Conv2d):
            self._convolution(name, module)
        elif isinstance(module, nn.AvgPool2d | nn.MaxPool2d):
            self._pool(name, module)
        elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and (last := self._bare("norms")) is not None:
            assert module.momentum is not None, "a running mean of fixed pace"
            norms = Norms((name,), module.eps, module.momentum)
            self.stages[-1] = replace(last, norms=norms, norm_last=last.activation != "linear")
        elif type(module) in ACTIVATION_NAMES and (last := self._bare("activation")) is not None:
            self.stages[-1] = replace(last, activation=ACTIVATION_NAMES[type(module)])
        else:
            raise ValueError(f"model: networks that hold {module} ({name}) do not train together")

    def _bare(self, kind: str) -> Stage | None:
        """Return the last stage where it is a layer without an activation, or without a normalisation."""
        last = self.stages[-1] if self.stages else None
        return last if isinstance(last, Stage) and getattr(last, kind) in ("linear", None) else None

    def _layer(self, module: nn.Linear | nn.Conv2d, stage: Stage) -> None:
        if module.bias is None:
            raise ValueError(f"model: expected a bias in every layer; {stage.names[0]} has none")
        self.stages.append(stage)
        self.channels = stage.outputs

    def _convolution(self, name: str, module: nn.Conv2d) -> None:
        side, stride = module.kernel_size[0], module.stride[0]
        circular, pad = module.padding_mode == "circular", module.padding[0]
        plain = module.groups == 1 and module.dilation == (1, 1) and (circular or module.padding_mode == "zeros")
        square = module.kernel_size == (side, side) and module.stride == (stride, stride) and side % 2 == 1
        padded = module.padding == (pad, pad) and (pad == side // 2 or not circular)
        if not (plain and square and padded):
            raise ValueError(f"model: convolutions like {name} ({module}) do not train together")
        own = None if pad == side // 2 else int(pad)
        grid = Grid(self.height, self.width, side, stride, own, circular)
        self._layer(module, Stage((name,), module.in_channels, module.out_channels, grid))
        self.height, self.width = grid.out_height, grid.out_width

    def _pool(self, name: str, module: nn.AvgPool2d | nn.MaxPool2d) -> None:
        side = module.kernel_size
        if not isinstance(side, int) or module.stride != side or module.padding != 0:
            raise ValueError(f"model: pools like {name} ({module}) do not train together")
        self.stages.append(Pool(self.channels, self.height, self.width, side, isinstance(module, nn.MaxPool2d)))
        self.height, self.width = self.height // side, self.width // side


def _merged(stages: list[Stage | Pool]) -> list[Stage | Pool]:
    """Join neighbours that differ in their names alone."""
    merged: list[Stage | Pool] = []
    for stage in stages:
        last = merged[-1] if merged else None
        if isinstance(stage, Stage) and isinstance(last, Stage) and _equal_shapes(last, stage):
            merged[-1] = replace(stage, names=last.names + stage.names)
        else:
            merged.append(stage)
    return merged


def _equal_shapes(one: Stage, two: Stage) -> bool:
    same = replace(one, names=()) == replace(two, names=())
    return same and one.norms is None and one.features[0] == one.features[1]


def as_rows(images: Tensor, stages: list[Stage | Pool]) -> Tensor:
    """Return images ``[..., C, H, W]`` as rows of numbers, in the order in which the first stage reads them."""
    first = stages[0]
    if isinstance(first, Pool) or first.grid is not None:
        images = torch.movedim(images, -3, -1)
    return images.flatten(-3)
