"""Stacked residual networks: their layout, read from the modules, and explicit forward and backward passes."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from orthosparse.lab.models.resnet import Block, ResNet
from orthosparse.lab.models.stages import ACTIVATION_NAMES, Grid, Norms, Stage
from orthosparse.lab.training.stacked.chain import LayerRun
from orthosparse.lab.training.stacked.maps import Maps, PreviousLayer, Samples
from orthosparse.lab.training.stacked.slab import NormSlab


@dataclass(frozen=True)
class LayerIndex:
    """The index of a convolution and its normalisation: layer `layer` of stage `stage`."""

    stage: int
    layer: int


@dataclass(frozen=True)
class BlockLayout:
    """A block: two convolutions and a shortcut, which is the identity (None) or a convolution."""

    first: LayerIndex
    second: LayerIndex
    shortcut: LayerIndex | None


@dataclass(frozen=True)
class Layout:
    """A residual network: a convolution, blocks, the mean of every channel, and a linear layer.

    Attributes:
        stages: of equal convolutions, which pad with zeros.
        positions: pixels of the maps whose means are taken.
    """

    stages: tuple[tuple[Stage, Norms], ...]
    stem: LayerIndex
    blocks: tuple[BlockLayout, ...]
    head: Stage
    positions: int
    activation: str


def layout_of(network: ResNet, in_shape: tuple[int, int, int]) -> Layout:
    """Return the layout of a residual network whose images have the shape `in_shape`."""
    reader = _LayoutReader(*in_shape[1:])
    stem = reader.read("conv1", network.conv1, "bn1", network.bn1)
    blocks = []
    for stage in ("layer1", "layer2", "layer3"):
        for name, block in getattr(network, stage).named_children():
            blocks.append(_block_layout(reader, f"{stage}.{name}", block))
    head = Stage(("fc",), network.fc.in_features, network.fc.out_features)
    activation = ACTIVATION_NAMES[type(network.act1)]
    return Layout(reader.stages(), stem, tuple(blocks), head, reader.height * reader.width, activation)


def _block_layout(reader: "_LayoutReader", name: str, block: Block) -> BlockLayout:
    height, width = reader.height, reader.width
    first = reader.read(f"{name}.conv1", block.conv1, f"{name}.bn1", block.bn1)
    second = reader.read(f"{name}.conv2", block.conv2, f"{name}.bn2", block.bn2)
    if not len(block.shortcut):
        return BlockLayout(first, second, None)
    shortcut_reader = _LayoutReader(height, width, reader.names)
    convolution, norm = block.shortcut
    shortcut = shortcut_reader.read(f"{name}.shortcut.0", convolution, f"{name}.shortcut.1", norm)
    return BlockLayout(first, second, shortcut)


_Kind = tuple[int, int, Grid, float, float]


class _LayoutReader:
    """Follows the size of a map through the convolutions, and groups equal ones.

    Attributes:
        names: of convolutions and their normalisations, by kind; two readers may share it.
    """

    def __init__(self, height: int, width: int, names: dict[_Kind, list[tuple[str, str]]] | None = None) -> None:
        self.height, self.width = height, width
        self.names: dict[_Kind, list[tuple[str, str]]] = {} if names is None else names

    def read(self, name: str, convolution: nn.Module, norm_name: str, norm: nn.Module) -> LayerIndex:
        """Add a convolution and its normalisation; return their index."""
        assert isinstance(convolution, nn.Conv2d), "a convolution"
        assert isinstance(norm, nn.BatchNorm2d), "a normalisation"
        assert norm.momentum is not None, "a running mean of fixed momentum"
        grid = Grid(self.height, self.width, convolution.kernel_size[0], convolution.stride[0], circular=False)
        self.height, self.width = grid.out_height, grid.out_width
        kind = (convolution.in_channels, convolution.out_channels, grid, norm.eps, norm.momentum)
        equal = self.names.setdefault(kind, [])
        equal.append((name, norm_name))
        return LayerIndex(list(self.names).index(kind), len(equal) - 1)

    def stages(self) -> tuple[tuple[Stage, Norms], ...]:
        """Return the stages that were read."""
        stages = []
        for (inputs, outputs, grid, eps, momentum), names in self.names.items():
            layers, norms = zip(*names, strict=True)
            stages.append((Stage(layers, inputs, outputs, grid), Norms(norms, eps, momentum)))
        return tuple(stages)


class _SavedBlock(NamedTuple):
    """What the backward pass of a block needs: its input, its convolutions and their inputs, and its output."""

    x: Tensor
    first_z: Tensor
    second_x: Samples
    second_z: Tensor
    shortcut_z: Tensor | None
    y: Tensor


class Residual:
    """Residual networks of one layout.

    The convolutions and the outputs of activations are saved. The kernel that computes a gradient also takes it through
    the activation before, and computes the sums that the normalisation before that needs.

    Args:
        slabs: of the stages of the layout.
        maps: the operations between feature maps.
    """

    def __init__(self, layout: Layout, slabs: list[NormSlab], head: LayerRun, maps: Maps) -> None:
        self.layout, self.slabs, self.head, self.maps = layout, slabs, head, maps

    def infer(self, x: Tensor) -> Tensor:
        """Return the logits for samples ``[networks, batch, features]`` by the running statistics; save nothing."""
        passing = _Pass(self, training=False)
        *_, y = passing.stem(x)
        for block in self.layout.blocks:
            y = passing.block(block, y).y
        return self.head.infer(self._pooled(y, x.shape[1]))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Return the outputs by the statistics of the batch, and what the backward pass needs."""
        passing = _Pass(self, training=True)
        stem_x, stem_z, y = passing.stem(x)
        saved: list[Any] = [(passing, stem_x, stem_z)]
        for block in self.layout.blocks:
            saved.append(passing.block(block, y))
            y = saved[-1].y
        logits, head = self.head.forward(self._pooled(y, x.shape[1]))
        return logits, [*saved, head]

    def backward(self, grad: Tensor, saved: list[Any]) -> None:
        """Fill the gradients of all slabs and their norms; `saved` is emptied on the way."""
        pooled_grad = self.head.backward(grad, saved.pop(), first=False)
        assert pooled_grad is not None, "the head is not first"
        passing, stem_x, stem_z = saved[0]
        last = saved[-1]
        y_grad = (pooled_grad / self.layout.positions).unsqueeze(2).expand(-1, -1, self.layout.positions, -1)
        previous = PreviousLayer(last.y, last.second_z, self.layout.activation)
        grad, sums = self.maps.activation_backward(y_grad.reshape(last.y.shape), previous)
        for block in reversed(self.layout.blocks):
            saved_block = saved.pop()
            previous_z = saved[-1].second_z if len(saved) > 1 else stem_z
            grad, sums = passing.block_backward(block, saved_block, previous_z, grad, sums)
        passing.stem_backward(stem_x, stem_z, grad, sums)
        saved.clear()
        for slab in self.slabs:
            self.maps.finish_weight_grads(slab)

    def _pooled(self, y: Tensor, batch: int) -> Tensor:
        return y.view(len(y), batch, self.layout.positions, -1).mean(2)


class _Pass:
    """A pass through the network with the weights as they are when it is made."""

    def __init__(self, network: Residual, *, training: bool) -> None:
        self.layout, self.maps, self.slabs, self.training = network.layout, network.maps, network.slabs, training
        for slab in self.slabs:
            self.maps.refresh(slab)

    def stem(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the input of the first convolution, the convolution, and its normalised activation."""
        slab = self.slabs[self.layout.stem.stage]
        x = self.maps.network_input(x.reshape(len(x), -1, slab.stage.inputs), slab)
        z, scale_shift = self._convolve(x, self.layout.stem)
        return x, z, self.maps.normalise(z, scale_shift, self.layout.activation)

    def block(self, block: BlockLayout, x: Tensor) -> _SavedBlock:
        activation = self.layout.activation
        first_z, scale_shift = self._convolve(x, block.first)
        second_x = self.maps.conv_input(self.slabs[block.second.stage], first_z, scale_shift, activation)
        second_z, scale_shift = self._convolve(second_x, block.second)
        if block.shortcut is None:
            y = self.maps.normalise(second_z, scale_shift, activation, x)
            return _SavedBlock(x, first_z, second_x, second_z, None, y)
        shortcut_z, shortcut_scale_shift = self._convolve(x, block.shortcut)
        y = self.maps.normalise(second_z, scale_shift, activation, shortcut_z, shortcut_scale_shift)
        return _SavedBlock(x, first_z, second_x, second_z, shortcut_z, y)

    def block_backward(
        self, block: BlockLayout, saved: _SavedBlock, previous_z: Tensor, grad: Tensor, sums: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient before the activation that gave the input of a block, and its sums with `previous_z`."""
        first_grad, first_sums = self._backward(
            block.second, grad, saved.second_z, sums, saved.second_x, previous_z=saved.first_z
        )
        shortcut_grad = grad
        if block.shortcut is not None and saved.shortcut_z is not None:
            shortcut_sums = self.maps.sums(grad, saved.shortcut_z)
            shortcut_grad, _ = self._backward(block.shortcut, grad, saved.shortcut_z, shortcut_sums, saved.x)
        return self._backward(
            block.first,
            first_grad,
            saved.first_z,
            first_sums,
            saved.x,
            shortcut_grad=shortcut_grad,
            previous_z=previous_z,
        )

    def stem_backward(self, x: Tensor, z: Tensor, grad: Tensor, sums: Tensor) -> None:
        """Fill the gradients of the first convolution and its normalisation."""
        slab, layer = self.slabs[self.layout.stem.stage], self.layout.stem.layer
        z_grad = self.maps.norm_backward(grad, z, self.maps.norm_grads(slab, layer, sums, grad.shape[1]))
        self.maps.weight_grad(slab, layer, z_grad, x)

    def _convolve(self, x: Samples, index: LayerIndex) -> tuple[Tensor, Tensor]:
        """Return a convolution, and the scale and shift that normalise it."""
        slab = self.slabs[index.stage]
        z, sums = self.maps.convolve(x, slab, index.layer, with_sums=self.training)
        if sums is None:
            return z, self.maps.running_scale_shift(slab, index.layer)
        if z.shape[1] < 2:  # as torch
            raise ValueError("batch: expected more than one value a channel to train on; got a single one")
        return z, self.maps.scale_shift(slab, index.layer, sums, z.shape[1])

    def _backward(
        self,
        index: LayerIndex,
        grad: Tensor,
        z: Tensor,
        sums: Tensor,
        x: Samples,
        *,
        shortcut_grad: Tensor | None = None,
        previous_z: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        return self.maps.backward(
            self.slabs[index.stage],
            index.layer,
            grad,
            z,
            sums,
            x,
            shortcut_grad=shortcut_grad,
            previous_z=previous_z,
            activation=self.layout.activation,
        )
