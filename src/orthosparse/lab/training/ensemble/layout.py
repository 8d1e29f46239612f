"""The layout of a residual network, read off its modules: stages of equal convolutions, and how blocks join them."""

from dataclasses import dataclass

from torch import nn

from orthosparse.lab.models.resnet import Block, ResNet
from orthosparse.lab.training.ensemble.normed import Norms
from orthosparse.lab.training.ensemble.stages import ACTIVATION_NAMES, Grid, Stage


@dataclass(frozen=True)
class Spot:
    """A convolution and its normalisation: layer `layer` of stage `stage`."""

    stage: int
    layer: int


@dataclass(frozen=True)
class Joint:
    """A block: two convolutions beside a shortcut, which is the samples themselves or a convolution of its own."""

    first: Spot
    second: Spot
    shortcut: Spot | None


@dataclass(frozen=True)
class Layout:
    """A residual network: a convolution, blocks, the mean of every channel, and a linear layer.

    Attributes:
        stages: of equal convolutions, which pad with zeros.
        positions: of the maps of which means are taken.
    """

    stages: tuple[tuple[Stage, Norms], ...]
    stem: Spot
    joints: tuple[Joint, ...]
    head: Stage
    positions: int
    activation: str


def layout_of(network: ResNet, in_shape: tuple[int, int, int]) -> Layout:
    """Return the layout of a residual network that gets pictures of `in_shape`."""
    reader = _Reader(*in_shape[1:])
    stem = reader.read("conv1", network.conv1, "bn1", network.bn1)
    joints = []
    for stage in ("layer1", "layer2", "layer3"):
        for name, block in getattr(network, stage).named_children():
            joints.append(_joint(reader, f"{stage}.{name}", block))
    head = Stage(("fc",), network.fc.in_features, network.fc.out_features)
    activation = ACTIVATION_NAMES[type(network.act1)]
    return Layout(reader.stages(), stem, tuple(joints), head, reader.height * reader.width, activation)


def _joint(reader: "_Reader", name: str, block: Block) -> Joint:
    height, width = reader.height, reader.width
    first = reader.read(f"{name}.conv1", block.conv1, f"{name}.bn1", block.bn1)
    second = reader.read(f"{name}.conv2", block.conv2, f"{name}.bn2", block.bn2)
    if not len(block.shortcut):
        return Joint(first, second, None)
    beside = _Reader(height, width, reader.found)
    convolution, norm = block.shortcut
    shortcut = beside.read(f"{name}.shortcut.0", convolution, f"{name}.shortcut.1", norm)
    return Joint(first, second, shortcut)


_Kind = tuple[int, int, Grid, float, float]


class _Reader:
    """Follows the size of a map through the convolutions, and groups those that are alike."""

    def __init__(self, height: int, width: int, found: dict[_Kind, list[tuple[str, str]]] | None = None) -> None:
        self.height, self.width = height, width
        self.found: dict[_Kind, list[tuple[str, str]]] = {} if found is None else found

    def read(self, name: str, convolution: nn.Module, norm_name: str, norm: nn.Module) -> Spot:
        """Add a convolution and its normalisation; return where they are."""
        assert isinstance(convolution, nn.Conv2d), "a convolution"
        assert isinstance(norm, nn.BatchNorm2d), "a normalisation"
        assert norm.momentum is not None, "of a fixed pace"
        grid = Grid(self.height, self.width, convolution.kernel_size[0], convolution.stride[0])
        self.height, self.width = grid.out_height, grid.out_width
        kind = (convolution.in_channels, convolution.out_channels, grid, norm.eps, norm.momentum)
        alike = self.found.setdefault(kind, [])
        alike.append((name, norm_name))
        return Spot(list(self.found).index(kind), len(alike) - 1)

    def stages(self) -> tuple[tuple[Stage, Norms], ...]:
        """Return the stages that were found."""
        made = []
        for (inputs, outputs, grid, eps, momentum), names in self.found.items():
            layers, norms = zip(*names, strict=True)
            made.append((Stage(layers, inputs, outputs, grid), Norms(norms, eps, momentum)))
        return tuple(made)
