"""One tensor of a model, and the layout of the matrices in it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from orthosparse.layers.tensors import leaf
from orthosparse.structures import ENTRIES, block_of


@dataclass(frozen=True, eq=False)
class Layer:
    """One tensor of a model, and the matrices that it holds.

    Attributes:
        name: its key in Masks: the name of the module if the tensor is called ``weight``, else ``module.tensor``.
        module_name: name of `module`, the module that holds it.
        tensor: name of the parameter in `module`.
        kind: ``linear``, ``conv`` or ``recurrent``.
        groups: groups of the convolution.
        parts: output sizes of the matrices that are fused in it (qkv, gates); a single entry if there is only one.
        repeats: how often the rows of the parts alternate: 1 if the parts follow one another, the number of heads if
            each head has its own query, key and value rows.
        stacked: whether its first dimension runs over experts, each of which has all the parts.
        transposed: whether it is stored as (in, out, ...).
        biases: names of the bias parameters of `module` that belong to it.
        tied: other modules and tensors that are the same parameter.
        structure: the units that are active or not: ``entries``, ``block:64`` (or another size) or ``2:4``.
        note: what could not be determined about it.
    """

    name: str
    module: nn.Module
    module_name: str
    tensor: str
    kind: str
    parts: tuple[int, ...]
    groups: int = 1
    repeats: int = 1
    stacked: bool = False
    transposed: bool = False
    biases: tuple[str, ...] = ()
    tied: tuple[tuple[nn.Module, str], ...] = ()
    structure: str = ENTRIES
    note: str = ""

    @cached_property
    def shape(self) -> torch.Size:
        """Shape of the tensor; the whole shape if it is sharded."""
        return self.parameter().shape

    @property
    def numel(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)

    @property
    def experts(self) -> int:
        """Number of experts stacked in it; 1 if it is not a stack."""
        return self.shape[0] if self.stacked else 1

    @property
    def kernel(self) -> torch.Size:
        """Shape of the kernel; empty for a matrix."""
        return self.shape[3:] if self.stacked else self.shape[2:]

    @property
    def strided(self) -> bool:
        """Whether it is a convolution with a stride."""
        return isinstance(self.module, _ConvNd) and max(self.module.stride) > 1

    @property
    def geometry(self) -> dict[str, tuple[int, ...]]:
        """`stride`, `padding` and `dilation` of a convolution, one number for each dimension of its kernel."""
        module, dims = self.module, len(self.kernel)
        if not isinstance(module, _ConvNd):
            return {"stride": (1,) * dims, "padding": (0,) * dims, "dilation": (1,) * dims}
        if module.padding == "same":
            padding = tuple(gap * (side - 1) // 2 for gap, side in zip(module.dilation, self.kernel, strict=True))
        else:
            padding = (0,) * dims if isinstance(module.padding, str) else tuple(module.padding)
        return {"stride": tuple(module.stride), "padding": padding, "dilation": tuple(module.dilation)}

    @property
    def taps(self) -> int:
        """Number of positions in the kernel; 1 for a matrix."""
        return math.prod(self.kernel)

    @property
    def floor(self) -> int:
        """The smallest number of active entries with which all of its matrices can be orthogonal."""
        return self.block * sum(min(shape) for shape in self.shapes)

    @property
    def block(self) -> int:
        """Side of its square blocks; 1 if the structure is not blocks."""
        return 1 if self.structure == ENTRIES else block_of(self.structure)

    @property
    def unit(self) -> int:
        """Number of entries in a unit."""
        return self.block**2

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(out, in) of each of its matrices, in the order of `matrices`."""
        first, second = self.shape[1:3] if self.stacked else (self.shape[0] // self.groups, self.shape[1])
        rows, inputs = (second, first) if self.transposed else (first, second)
        if self.groups == 1:
            return [(part, inputs) for part in self.parts for _ in range(self.experts)]
        return [(last - first, inputs) for _, first, last in _row_ranges(self.groups, rows, self.parts)]

    @property
    def depthwise(self) -> bool:
        """Whether each group has a single input channel (a single output channel if transposed)."""
        return self.groups > 1 and self.shape[1] == 1

    def parameter(self) -> nn.Parameter:
        """Return the parameter that an optimizer trains."""
        return leaf(self.module, self.tensor)

    def weight(self) -> torch.Tensor:
        """Return the tensor as the module uses it: masked if a mask is attached, and detached."""
        value: torch.Tensor = getattr(self.module, self.tensor)
        return value.detach()

    def matrices(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the matrices in a contiguous `tensor` of this layer's shape, to read: ``[how_many, out, in, taps]``.

        They are views, except where the rows of several matrices alternate.
        """
        return [stack.flatten(1, 2) for stack in self._stacks(tensor)]

    def kernels(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the matrices in `tensor` as they are measured: ``[how_many, first, second, *kernel]``.

        The first dimension holds outputs and the second inputs, except in a transposed convolution with a stride, which
        keeps the order in which it is stored.
        """
        stacks = [stack.reshape(*stack.shape[:3], *self.kernel) for stack in self.matrices(tensor.contiguous())]
        return [stack.transpose(1, 2) for stack in stacks] if self.strided and self.transposed else stacks

    def views(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return a view of each matrix in a contiguous `tensor` of this layer's shape: ``[repeats, rows, in, taps]``.

        The order is that of `shapes`. To write a matrix: ``view.copy_(matrix.reshape(view.shape))``.
        """
        return [view for stack in self._stacks(tensor) for view in stack]

    def _stacks(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        stack = tensor if self.stacked else tensor.unflatten(0, (self.groups, -1))
        stack = stack.flatten(3) if stack.dim() > 3 else stack.unsqueeze(3)
        stack = stack.transpose(1, 2) if self.transposed else stack
        return _grouped_views(stack, self.parts) if self.groups > 1 else _fused_views(stack, self.parts, self.repeats)


def _row_ranges(groups: int, rows: int, parts: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (group, first row, row after the last) of every matrix, where each group has `rows` outputs.

    Parts follow one another over all outputs. A part that spans several groups has one matrix in each, because groups
    have separate inputs; the part is orthogonal if and only if each of these matrices is.

    Example:
        >>> _row_ranges(1, 6, (4, 2)), _row_ranges(2, 3, (4, 2))
        ([(0, 0, 4), (0, 4, 6)], [(0, 0, 3), (1, 0, 1), (1, 1, 3)])
    """
    ends = {*accumulate(parts), *range(rows, groups * rows + 1, rows or 1)}
    return [(first // rows, first % rows, first % rows + last - first) for first, last in pairwise(sorted({0, *ends}))]


def _grouped_views(stack: torch.Tensor, parts: Sequence[int]) -> list[torch.Tensor]:
    """Return views [how_many, 1, out, in, taps] of ``[groups, out, in, taps]``, where parts span all groups.

    Example:
        >>> [part.shape[:3] for part in _grouped_views(torch.zeros(2, 3, 3, 1), (4, 2))]
        [torch.Size([1, 1, 3]), torch.Size([1, 1, 1]), torch.Size([1, 1, 2])]
    """
    ranges = _row_ranges(stack.shape[0], stack.shape[1], parts)
    if len(ranges) == len(stack):
        return [stack.unsqueeze(1)]
    return [stack[group : group + 1, None, first:last] for group, first, last in ranges]


def _fused_views(stack: torch.Tensor, parts: Sequence[int], repeats: int) -> list[torch.Tensor]:
    """Return views [how_many, repeats, rows, in, taps] of ``[experts, out, in, taps]``; each expert has all parts.

    The rows of each part are divided into `repeats` pieces, which alternate with those of the other parts. Parts of
    equal size are returned as one stack if strides allow it.

    Example:
        >>> [part.shape[:3] for part in _fused_views(torch.zeros(1, 8, 3, 1), (4, 2, 2), 2)]
        [torch.Size([1, 2, 2]), torch.Size([1, 2, 1]), torch.Size([1, 2, 1])]
    """
    if len(stack) == repeats == 1 and len(set(parts)) == 1:
        return [stack[0].unflatten(0, (len(parts), 1, parts[0]))]
    return list(stack.unflatten(1, (repeats, -1)).split([part // repeats for part in parts], dim=2))


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
