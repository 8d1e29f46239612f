"""How constant channels and unread channels pass through the operations of a graph.

A rule says for one node on which side its channels lie, which of them are constant given those of its inputs, and which
channels of its inputs it reads when only some of its own are needed. A node without a rule reads everything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx, nn

from orthosparse.deploying.folding import CONVOLUTIONS, Layer, pads, scale_and_shift


@dataclass(frozen=True, eq=False)
class Constants:
    """Which channels of a tensor have one value, whatever the input, and these values in float64, on the CPU."""

    known: Tensor
    value: Tensor

    @staticmethod
    def none(size: int) -> "Constants":
        """Return that nothing is known of `size` channels."""
        return Constants(torch.zeros(size, dtype=torch.bool), torch.zeros(size, dtype=torch.float64))

    def __and__(self, which: Tensor) -> "Constants":
        """Return the constants of some channels alone."""
        return Constants(self.known & which, torch.where(which, self.value, 0.0))


@dataclass(frozen=True, eq=False)
class Rule:
    """A node with the same channels as its inputs, all computed by the same function: an activation, a pool.

    Attributes:
        axis: the dimension of the channels in the node's tensor, and in those of its inputs.
        inputs: the nodes whose channels it reads.
        function: what it does to a constant; None where only zero stays the same.
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
        """Return which channels it computes when some are needed: these, and what cannot be separated from them."""
        return need

    def spread(self, channels: Tensor) -> Tensor:
        """Return which of its channels it computes from some of an input's."""
        return channels

    def reads(self, need: Tensor, constants: Constants, inputs: Sequence[Constants]) -> tuple[Tensor, ...]:
        """Return which channels of each input it reads."""
        del constants
        return tuple(need for _ in inputs)


class SumRule(Rule):
    """The sum of two tensors of one shape."""

    def constants(self, inputs: Sequence[Constants]) -> Constants:
        """Return the sums of constants."""
        a, b = inputs
        return Constants(a.known & b.known, a.value + b.value) & (a.known & b.known)


class ProductRule(Rule):
    """The product of two tensors, of which one may be the same for all pixels of a channel."""

    def constants(self, inputs: Sequence[Constants]) -> Constants:
        """Return the products of constants, and zero times anything."""
        a, b = inputs
        zero = a.known & (a.value == 0) | b.known & (b.value == 0)
        both = a.known & b.known
        return Constants(both | zero, torch.where(zero, 0.0, a.value * b.value)) & (both | zero)


@dataclass(frozen=True, eq=False)
class FlattenRule(Rule):
    """Channels and the pixels of each as one side: every channel becomes `repeats` neighbours."""

    repeats: int = 1

    def constants(self, inputs: Sequence[Constants]) -> Constants:
        """Return the constant of the channel, for each pixel."""
        (known,) = inputs
        repeated = (each.repeat_interleave(self.repeats) for each in (known.known, known.value))
        return Constants(*repeated)

    def needed(self, need: Tensor) -> Tensor:
        """Return all pixels of the channels that are needed."""
        return self.spread(need.view(-1, self.repeats).any(1))

    def spread(self, channels: Tensor) -> Tensor:
        """Return all pixels of some channels."""
        return channels.repeat_interleave(self.repeats)

    def reads(self, need: Tensor, constants: Constants, inputs: Sequence[Constants]) -> tuple[Tensor, ...]:
        """Return the channels whose pixels are needed."""
        del constants, inputs
        return (need.view(-1, self.repeats).any(1),)


@dataclass(frozen=True, eq=False)
class ChannelwiseRule(Rule):
    """A batch norm or a depthwise convolution: channel by channel, each with weights of its own."""

    module: nn.Module = field(kw_only=True)

    def constants(self, inputs: Sequence[Constants]) -> Constants:
        """Return what becomes of constants, and the biases of channels whose weights are zero."""
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
    """A linear layer or a convolution in one group: each output reads the inputs where its weights are not zero."""

    module: Layer = field(kw_only=True)

    def constants(self, inputs: Sequence[Constants]) -> Constants:
        """Return the outputs that read constants alone."""
        matrix, (known,) = matrix_of(self.module), inputs
        usable = usable_of(self.module, known)
        varies = ((matrix != 0).any(2) & ~usable).any(1)
        value = matrix.sum(2) @ torch.where(usable, known.value, 0.0) + bias_of(self.module)
        return Constants(~varies, value) & ~varies

    def reads(self, need: Tensor, constants: Constants, inputs: Sequence[Constants]) -> tuple[Tensor, ...]:
        """Return the inputs that needed outputs read, without those that go into the bias."""
        rows = (matrix_of(self.module) != 0).any(2)[need & ~constants.known]
        return (rows.any(0) & ~usable_of(self.module, inputs[0]),)


def matrix_of(module: Layer) -> Tensor:
    """Return the weight of a layer as ``[outputs, inputs, taps]``, in float64 on the CPU."""
    weight = module.weight.cpu().double()
    return weight.unsqueeze(2) if weight.dim() == 2 else weight.flatten(2)


def bias_of(module: Layer) -> Tensor:
    """Return the bias of a layer in float64, zeros where it has none."""
    if module.bias is None:
        return torch.zeros(len(module.weight), dtype=torch.float64)
    return module.bias.cpu().double()


def usable_of(module: nn.Module, inputs: Constants) -> Tensor:
    """Return which constant inputs a module sees as constants: with zero padding, only those that are zero."""
    return inputs.known & (inputs.value == 0) if pads(module) else inputs.known
