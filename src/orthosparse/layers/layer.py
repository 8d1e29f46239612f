"""One tensor of a model that is sparsified, and how matrices lie in it."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from orthosparse.layers.matrices import matrix_views, row_ranges
from orthosparse.parametrized import leaf
from orthosparse.structures import ENTRIES, block_of


@dataclass(frozen=True, eq=False)
class Layer:
    """One tensor of a model, and how matrices lie in it.

    Attributes:
        name: its key in Masks: the module's name when the tensor is called ``weight``, else ``module.tensor``.
        kind: ``linear``, ``conv`` or ``recurrent``.
        groups: convolution groups.
        parts: output sizes of the matrices that lie in it one after the other (fused qkv, gates); one entry otherwise.
        transposed: stored as (in, out, ...).
        biases: the bias parameters of `module` that go with it.
        tied: other places that hold the same parameter.
        structure: the units of it that are active or not (see `structures`).
    """

    name: str
    module: nn.Module
    module_name: str
    tensor: str
    kind: str
    parts: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    biases: tuple[str, ...] = ()
    tied: tuple[tuple[nn.Module, str], ...] = ()
    structure: str = ENTRIES

    @cached_property
    def shape(self) -> torch.Size:
        """The tensor's shape (the whole one when it is sharded)."""
        return self.parameter().shape

    @property
    def numel(self) -> int:
        """How many weights it has."""
        return math.prod(self.shape)

    @property
    def taps(self) -> int:
        """Positions of the kernel; 1 for a matrix."""
        return math.prod(self.shape[2:])

    @property
    def floor(self) -> int:
        """The fewest active entries with which every matrix in it can be orthogonal."""
        return self.block * sum(min(shape) for shape in self.shapes)

    @property
    def block(self) -> int:
        """Side of the square blocks that are active or not; 1 where those are entries."""
        return block_of(self.structure)

    @property
    def unit(self) -> int:
        """How many entries are active or not together."""
        return self.block**2

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(out, in) of each matrix in it, in the order of `matrices`."""
        stored = self.shape[0] // self.groups, self.shape[1]
        rows, inputs = reversed(stored) if self.transposed else stored
        return [(last - first, inputs) for _, first, last in row_ranges(self.groups, rows, self.parts)]

    @property
    def depthwise(self) -> bool:
        """Whether every group has a single input channel (or a single output one, transposed)."""
        return self.groups > 1 and self.shape[1] == 1

    def parameter(self) -> nn.Parameter:
        """Return the leaf tensor that an optimizer sees."""
        return leaf(self.module, self.tensor)

    def weight(self) -> torch.Tensor:
        """Return the tensor as the module uses it, masked where a mask is attached, detached."""
        value: torch.Tensor = getattr(self.module, self.tensor)
        return value.detach()

    def matrices(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return views of a contiguous `tensor` of this layer's shape as stacks ``[how_many, out, in, taps]``."""
        stack = tensor.view(self.groups, tensor.shape[0] // self.groups, tensor.shape[1], self.taps)
        return matrix_views(stack.transpose(1, 2) if self.transposed else stack, self.parts)


def layer_name(module_name: str, tensor: str) -> str:
    """Return the key of a tensor in Masks.

    Example:
        >>> layer_name("layer1.0.conv1", "weight"), layer_name("attn", "in_proj_weight"), layer_name("", "weight")
        ('layer1.0.conv1', 'attn.in_proj_weight', 'weight')
    """
    if tensor == "weight" and module_name:
        return module_name
    return f"{module_name}.{tensor}" if module_name else tensor


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the user's module inside DistributedDataParallel, DataParallel and torch.compile wrappers."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model
