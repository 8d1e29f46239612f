"""One tensor of a model that is sparsified, and how matrices lie in it."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from orthosparse.layers.matrices import fused_views, grouped_views, row_ranges
from orthosparse.parametrized import leaf
from orthosparse.structures import ENTRIES, block_of


@dataclass(frozen=True, eq=False)
class Layer:
    """One tensor of a model, and how matrices lie in it.

    Attributes:
        name: its key in Masks: the module's name when the tensor is called ``weight``, else ``module.tensor``.
        kind: ``linear``, ``conv`` or ``recurrent``.
        groups: convolution groups.
        parts: output sizes of the matrices that are fused in it (qkv, gates); one entry otherwise.
        repeats: how often the rows of the parts alternate: 1 where one part follows the other, the number of heads
            where each head has its own query, key and value rows.
        stacked: has a first side more, over experts: each of them has all the parts.
        transposed: stored as (in, out, ...).
        biases: the bias parameters of `module` that go with it.
        tied: other places that hold the same parameter.
        structure: the units of it that are active or not (see `structures`).
        note: what is not known of it, in words.
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
        """The tensor's shape (the whole one when it is sharded)."""
        return self.parameter().shape

    @property
    def numel(self) -> int:
        """How many weights it has."""
        return math.prod(self.shape)

    @property
    def experts(self) -> int:
        """How many experts are stacked in it; 1 where it is no such stack."""
        return self.shape[0] if self.stacked else 1

    @property
    def kernel(self) -> torch.Size:
        """The sides of the kernel; none for a matrix."""
        return self.shape[3:] if self.stacked else self.shape[2:]

    @property
    def strided(self) -> bool:
        """Whether it is a convolution with a stride."""
        return isinstance(self.module, _ConvNd) and max(self.module.stride) > 1

    @property
    def geometry(self) -> dict[str, tuple[int, ...]]:
        """`stride`, `padding` and `dilation` of a convolution, one number for each side of its kernel."""
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
        """Positions of the kernel; 1 for a matrix."""
        return math.prod(self.kernel)

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
        first, second = self.shape[1:3] if self.stacked else (self.shape[0] // self.groups, self.shape[1])
        rows, inputs = (second, first) if self.transposed else (first, second)
        if self.groups == 1:
            return [(part, inputs) for part in self.parts for _ in range(self.experts)]
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
        """Return the matrices of a contiguous `tensor` of this layer's shape, to read: ``[how_many, out, in, taps]``.

        They are views, but where their rows alternate with those of others.
        """
        return [view.flatten(1, 2) for view in self._views(tensor)]

    def kernels(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the matrices of `tensor` to measure, ``[how_many, first, second, *kernel]``.

        Outputs come first, and inputs second; in a transposed convolution with a stride, as they are stored.
        """
        stacks = [stack.reshape(*stack.shape[:3], *self.kernel) for stack in self.matrices(tensor.contiguous())]
        return [stack.transpose(1, 2) for stack in stacks] if self.strided and self.transposed else stacks

    def places(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return a view of a contiguous `tensor` of this layer's shape for each matrix: ``[repeats, rows, in, taps]``.

        In the order of `shapes`; write a matrix by ``place.copy_(matrix.reshape(place.shape))``.
        """
        return [place for view in self._views(tensor) for place in view]

    def _views(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        stack = tensor if self.stacked else tensor.unflatten(0, (self.groups, -1))
        stack = stack.flatten(3) if stack.dim() > 3 else stack.unsqueeze(3)
        stack = stack.transpose(1, 2) if self.transposed else stack
        return grouped_views(stack, self.parts) if self.groups > 1 else fused_views(stack, self.parts, self.repeats)


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
