"""Stacked residual networks: their layout, read off the modules, and forward and backward passes written out."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from orthosparse.lab.models.resnet import Block, ResNet
from orthosparse.lab.models.stages import ACTIVATION_NAMES, Grid, Norms, Stage
from orthosparse.lab.training.stacked.chain import LayerRun
from orthosparse.lab.training.stacked.maps import Below, Maps, Samples
from orthosparse.lab.training.stacked.slab import NormSlab


@dataclass(frozen=True)
class LayerAt:
    """A convolution and its normalisation: layer `layer` of stage `stage`."""

    stage: int
    layer: int


@dataclass(frozen=True)
class BlockAt:
    """A block: two convolutions beside a shortcut, which is the samples themselves or a convolution of its own."""

    first: LayerAt
    second: LayerAt
    shortcut: LayerAt | None


@dataclass(frozen=True)
class Layout:
    """A residual network: a convolution, blocks, the mean of every channel, and a linear layer.

    Attributes:
        stages: of equal convolutions, which pad with zeros.
        positions: of the maps of which means are taken.
    """

    stages: tuple[tuple[Stage, Norms], ...]
    stem: LayerAt
    blocks: tuple[BlockAt, ...]
    head: Stage
    positions: int
    activation: str


def layout_of(network: ResNet, in_shape: tuple[int, int, int]) -> Layout:
    """Return the layout of a residual network that gets images of `in_shape`."""
    reader = _LayoutReader(*in_shape[1:])
    stem = reader.read("conv1", network.conv1, "bn1", network.bn1)
    blocks = []
    for stage in ("layer1", "layer2", "layer3"):
        for name, block in getattr(network, stage).named_children():
            blocks.append(_block(reader, f"{stage}.{name}", block))
    head = Stage(("fc",), network.fc.in_features, network.fc.out_features)
    activation = ACTIVATION_NAMES[type(network.act1)]
    return Layout(reader.stages(), stem, tuple(blocks), head, reader.height * reader.width, activation)


def _block(reader: "_LayoutReader", name: str, block: Block) -> BlockAt:
    height, width = reader.height, reader.width
    first = reader.read(f"{name}.conv1", block.conv1, f"{name}.bn1", block.bn1)
    second = reader.read(f"{name}.conv2", block.conv2, f"{name}.bn2", block.bn2)
    if not len(block.shortcut):
        return BlockAt(first, second, None)
    beside = _LayoutReader(height, width, reader.found)
    convolution, norm = block.shortcut
    shortcut = beside.read(f"{name}.shortcut.0", convolution, f"{name}.shortcut.1", norm)
    return BlockAt(first, second, shortcut)


_Kind = tuple[int, int, Grid, float, float]


class _LayoutReader:
    """Follows the size of a map through the convolutions, and groups those that are same."""

    def __init__(self, height: int, width: int, found: dict[_Kind, list[tuple[str, str]]] | None = None) -> None:
        self.height, self.width = height, width
        self.found: dict[_Kind, list[tuple[str, str]]] = {} if found is None else found

    def read(self, name: str, convolution: nn.Module, norm_name: str, norm: nn.Module) -> LayerAt:
        """Add a convolution and its normalisation; return where they are."""
        assert isinstance(convolution, nn.Conv2d), "a convolution"
        assert isinstance(norm, nn.BatchNorm2d), "a normalisation"
        assert norm.momentum is not None, "of a fixed pace"
        grid = Grid(self.height, self.width, convolution.kernel_size[0], convolution.stride[0], circular=False)
        self.height, self.width = grid.out_height, grid.out_width
        kind = (convolution.in_channels, convolution.out_channels, grid, norm.eps, norm.momentum)
        same = self.found.setdefault(kind, [])
        same.append((name, norm_name))
        return LayerAt(list(self.found).index(kind), len(same) - 1)

    def stages(self) -> tuple[tuple[Stage, Norms], ...]:
        """Return the stages that were found."""
        made = []
        for (inputs, outputs, grid, eps, momentum), names in self.found.items():
            layers, norms = zip(*names, strict=True)
            made.append((Stage(layers, inputs, outputs, grid), Norms(norms, eps, momentum)))
        return tuple(made)


class _Seen(NamedTuple):
    """What the backward pass through a block needs: its input, its convolutions, the activations, and its output."""

    x: Tensor
    first: Tensor
    between: Samples
    second: Tensor
    beside: Tensor | None
    y: Tensor


class Residual:
    """Networks of one layout, one convolution of all networks after the other.

    Every convolution is kept, and what its activation gave. A gradient goes through an activation where it is made, and
    the sums that the normalisation before that needs are taken there too.

    Args:
        slabs: of the stages of the layout.
        maps: the operations between feature maps.
    """

    def __init__(self, layout: Layout, slabs: list[NormSlab], head: LayerRun, maps: Maps) -> None:
        self.layout, self.slabs, self.head, self.maps = layout, slabs, head, maps

    def infer(self, x: Tensor) -> Tensor:
        """Return the logits for samples ``[networks, batch, features]`` by the running statistics; keep nothing."""
        passing = _Pass(self, tested=True)
        *_, y = passing.stem(x)
        for block in self.layout.blocks:
            y = passing.block(block, y).y
        return self.head.infer(self._pooled(y, x.shape[1]))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Any]]:
        """Return the outputs by the statistics of the batch, and what the backward pass needs."""
        passing = _Pass(self, tested=False)
        seen, z, y = passing.stem(x)
        kept: list[Any] = [(passing, seen, z)]
        for block in self.layout.blocks:
            kept.append(passing.block(block, y))
            y = kept[-1].y
        logits, own = self.head.forward(self._pooled(y, x.shape[1]))
        return logits, [*kept, own]

    def backward(self, grad: Tensor, kept: list[Any]) -> None:
        """Fill the gradients of all slabs and their norms; `kept` is emptied on the way."""
        grad_pooled = self.head.backward(grad, kept.pop(), first=False)
        assert grad_pooled is not None, "the head is not first"
        passing, x, z = kept[0]
        last = kept[-1]
        spread = (grad_pooled / self.layout.positions).unsqueeze(2).expand(-1, -1, self.layout.positions, -1)
        below = Below(last.y, last.second, self.layout.activation)
        v, sums = self.maps.activation_backward(spread.reshape(last.y.shape), below)
        for block in reversed(self.layout.blocks):
            seen = kept.pop()
            before = kept[-1].second if len(kept) > 1 else z
            v, sums = passing.block_backward(block, seen, before, v, sums)
        passing.stem_backward(x, z, v, sums)
        kept.clear()
        for slab in self.slabs:
            self.maps.collect(slab)

    def _pooled(self, y: Tensor, batch: int) -> Tensor:
        return y.view(len(y), batch, self.layout.positions, -1).mean(2)


class _Pass:
    """A pass through the network by one state of its weights."""

    def __init__(self, network: Residual, *, tested: bool) -> None:
        self.layout, self.maps, self.slabs, self.tested = network.layout, network.maps, network.slabs, tested
        for slab in self.slabs:
            self.maps.refresh(slab)

    def stem(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        slab = self.slabs[self.layout.stem.stage]
        x = self.maps.prepared(x.reshape(len(x), -1, slab.stage.inputs), slab)
        z, scale_shift = self._normed(x, self.layout.stem)
        return x, z, self.maps.normalise(z, scale_shift, self.layout.activation)

    def block(self, at: BlockAt, x: Tensor) -> _Seen:
        activation = self.layout.activation
        first, scale_shift = self._normed(x, at.first)
        between = self.maps.samples_for(self.slabs[at.second.stage], first, scale_shift, activation)
        second, scale_shift = self._normed(between, at.second)
        if at.shortcut is None:
            return _Seen(x, first, between, second, None, self.maps.normalise(second, scale_shift, activation, x))
        beside, by = self._normed(x, at.shortcut)
        y = self.maps.normalise(second, scale_shift, activation, beside, by)
        return _Seen(x, first, between, second, beside, y)

    def block_backward(
        self, at: BlockAt, seen: _Seen, before: Tensor, v: Tensor, sums: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient before the activation that gave the input of a block, and its sums with `before`."""
        activation = self.layout.activation
        inner, own = self._backward(
            at.second, v, seen.second, sums, seen.between, below=seen.first, activation=activation
        )
        add = v
        if at.shortcut is not None and seen.beside is not None:
            add, _ = self._backward(at.shortcut, v, seen.beside, self.maps.sums(v, seen.beside), seen.x)
        return self._backward(at.first, inner, seen.first, own, seen.x, add=add, below=before, activation=activation)

    def stem_backward(self, x: Tensor, z: Tensor, v: Tensor, sums: Tensor) -> None:
        slab, layer = self.slabs[self.layout.stem.stage], self.layout.stem.layer
        grad = self.maps.norm_backward(v, z, self.maps.norm_grads(slab, layer, sums, v.shape[1]))
        self.maps.weight_grad(slab, layer, grad, x)

    def _normed(self, x: Samples, at: LayerAt) -> tuple[Tensor, Tensor]:
        slab = self.slabs[at.stage]
        z, sums = self.maps.convolve(x, slab, at.layer, counted=not self.tested)
        if sums is None:
            return z, self.maps.running_scale_shift(slab, at.layer)
        if z.shape[1] < 2:  # as torch
            raise ValueError("batch: expected more than one value a channel to train on; got a single one")
        return z, self.maps.scale_shift(slab, at.layer, sums, z.shape[1])

    def _backward(self, at: LayerAt, *given: Any, **what: Any) -> tuple[Tensor, Any]:
        return self.maps.backward(self.slabs[at.stage], at.layer, *given, **what)
