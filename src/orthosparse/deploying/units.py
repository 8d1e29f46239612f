"""How constant channels and unread channels pass through the operations of a graph.

The rule of a node says which dimension its channels are in, which of them are constant given the constant channels of
its inputs, and which channels of its inputs it reads if only some of its own are needed. A node without a rule reads
all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx, nn

from orthosparse.deploying.folding import CONVOLUTIONS, Layer, pads, scale_and_shift


@dataclass(frozen=True, eq=False)
class Constants:
    """Which channels of a tensor have the same value for every input, and these values in float64, on the CPU."""

    known: Tensor
    value: Tensor

    @staticmethod
    def none(size: int) -> "Constants":
        """Return `size` channels, none of which is constant."""
        known = torch.zeros(size, dtype=torch.bool, device="cpu")
        return Constants(known, known.double())

    def __and__(self, which: Tensor) -> "Constants":
        """Return only the constants of some channels."""
        return Constants(self.known & which, torch.where(which, self.value, 0.0))


@dataclass(frozen=True, eq=False)
class Rule:
    """A node that computes each channel from the same channel of its input, such as an activation or a pool.

    Attributes:
        axis: the dimension of the channels, in the output of the node and in its inputs.
        inputs: the nodes whose channels it reads.
        function: computes the output for a constant input; None if only zero is known to stay constant.
    """

    node: fx.Node
    axis: int
    size: int
    inputs: tuple[fx.Node, ...]
    function: Callable[[Tensor], Tensor] | None = None

    def constants(self, inputs: Sequence[Constants]) -> Constants:
        """Return which channels are constant."""
        (known,) = inputs
        if self.function is None:
            return known & (known.value == 0)
        return Constants(known.known, self.function(known.value)) & known.known

    def needed(self, need: Tensor) -> Tensor:
        """Return which channels it computes if some are needed: these, and those that cannot be separated from them."""
        return need

    def spread(self, channels: Tensor) -> Tensor:
        """Return which of its channels are computed from the given channels of an input."""
        return channels

    def reads(self, need: Tensor, constants: Constants, inputs: Sequence[Constants]) -> tuple[Tensor, ...]:
        """Return which channels of each input it reads, given which of its own are needed."""
        del constants
        return tuple(need for _ in inputs)


class SumRule(Rule):
    """The sum of two tensors, one of which may have a single value per channel."""

    def constants(self, inputs: Sequence[Constants]) -> Constants:
        """Return the sums of constants."""
        a, b = inputs
        return Constants(a.known & b.known, a.value + b.value) & (a.known & b.known)


class ProductRule(Rule):
    """The product of two tensors, one of which may have a single value per channel."""

    def constants(self, inputs: Sequence[Constants]) -> Constants:
        """Return the products of constants, and zero times anything."""
        a, b = inputs
        zero = a.known & (a.value == 0) | b.known & (b.value == 0)
        both = a.known & b.known
        return Constants(both | zero, torch.where(zero, 0.0, a.value * b.value)) & (both | zero)


@dataclass(frozen=True, eq=False)
class FlattenRule(Rule):
    """Channels and positions flattened into one dimension: each channel becomes `repeats` neighbours."""

    repeats: int = 1

    def constants(self, inputs: Sequence[Constants]) -> Constants:
        """Return the constant of the channel for each position."""
        (known,) = inputs
        repeated = (each.repeat_interleave(self.repeats) for each in (known.known, known.value))
        return Constants(*repeated)

    def needed(self, need: Tensor) -> Tensor:
        """Return all positions of the channels that are needed."""
        return self.spread(need.view(-1, self.repeats).any(1))

    def spread(self, channels: Tensor) -> Tensor:
        """Return all positions of some channels."""
        return channels.repeat_interleave(self.repeats)

    def reads(self, need: Tensor, constants: Constants, inputs: Sequence[Constants]) -> tuple[Tensor, ...]:
        """Return the channels of which a position is needed."""
        del constants, inputs
        return (need.view(-1, self.repeats).any(1),)


@dataclass(frozen=True, eq=False)
class ChannelwiseRule(Rule):
    """A batch norm or a depthwise convolution: each channel has its own weights."""

    module: nn.Module = field(kw_only=True)

    def constants(self, inputs: Sequence[Constants]) -> Constants:
        """Return the outputs for constant channels, and the biases of channels whose weights are zero."""
        (known,), module = inputs, self.module
        if isinstance(module, CONVOLUTIONS):
            scale, shift = matrix_of(module).sum(2)[:, 0], bias_of(module)
            dead = ~(matrix_of(module) != 0).flatten(1).any(1)
        else:
            scale, shift = (each.cpu() for each in scale_and_shift(module))
            dead = scale == 0
        usable = usable_of(module, known) | dead
        return Constants(usable, scale * torch.where(dead, 0.0, known.value) + shift) & usable


@dataclass(frozen=True, eq=False)
class LayerRule(Rule):
    """A linear layer, or a convolution without groups: each output reads the inputs where its weights are nonzero."""

    module: Layer = field(kw_only=True)

    def constants(self, inputs: Sequence[Constants]) -> Constants:
        """Return the outputs that read only constants."""
        matrix, (known,) = matrix_of(self.module), inputs
        usable = usable_of(self.module, known)
        varies = ((matrix != 0).any(2) & ~usable).any(1)
        value = matrix.sum(2) @ torch.where(usable, known.value, 0.0) + bias_of(self.module)
        return Constants(~varies, value) & ~varies

    def reads(self, need: Tensor, constants: Constants, inputs: Sequence[Constants]) -> tuple[Tensor, ...]:
        """Return the inputs that the needed outputs read, except constants, which go into the bias."""
        rows = (matrix_of(self.module) != 0).any(2)[need & ~constants.known]
        return (rows.any(0) & ~usable_of(self.module, inputs[0]),)


def matrix_of(module: Layer) -> Tensor:
    """Return the weight of a layer as ``[outputs, inputs, taps]``, in float64 on the CPU."""
    weight = module.weight.cpu().double()
    return weight.unsqueeze(2) if weight.dim() == 2 else weight.flatten(2)


def bias_of(module: Layer) -> Tensor:
    """Return the bias of a layer in float64 on the CPU; zeros if it has none."""
    if module.bias is None:
        return torch.zeros(len(module.weight), dtype=torch.float64, device="cpu")
    return module.bias.cpu().double()


def usable_of(module: nn.Module, inputs: Constants) -> Tensor:
    """Return which constant inputs are constants for a module: with zero padding, only those that are zero."""
    return inputs.known & (inputs.value == 0) if pads(module) else inputs.known
