"""Linear layers and 1 x 1 convolutions that hold only the active blocks of their weight."""

from typing import Any

import torch
from torch import Tensor

from orthosparse.checks import check_at_least, check_int
from orthosparse.modules.compact_module import Compact
from orthosparse.modules.pointwise import Pointwise
from orthosparse.operators import SIZES, block_linear, plan_of


class BlockLinear(Compact):
    """A linear layer that holds only active blocks: ``values`` has shape ``[blocks, size, size]`` and starts at zero.

    On a GPU, the products are Triton kernels, tuned at the first call of each shape (which takes a few seconds). On
    other devices, and in float64, they are batched matrix products.

    Args:
        in_features: as in `torch.nn.Linear`.
        out_features: as in `torch.nn.Linear`.
        bias: as in `torch.nn.Linear`.
        device: device of `values` and the bias.
        dtype: type of `values` and the bias.
        blocks: number of active blocks.
        size: number of rows and columns of a block: 16, 32, 64 or 128.

    Raises:
        ValueError: `size` is not one of these or does not divide the features, or there are too many blocks.

    Example:
        >>> layer = BlockLinear(64, 32, blocks=3, size=16)
        >>> layer(torch.ones(5, 64)).shape, layer.values.shape, layer.density
        (torch.Size([5, 32]), torch.Size([3, 16, 16]), 0.375)
    """

    plan: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        blocks: int,
        size: int,
        *,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        for name, number in (("in_features", in_features), ("out_features", out_features), ("blocks", blocks)):
            check_at_least(number, 0, name)
        if check_int(size, "size") not in SIZES or in_features % size or out_features % size:
            raise ValueError(
                f"size: expected one of {', '.join(map(str, SIZES))} that divides {in_features} and {out_features}; "
                f"got {size!r}"
            )
        super().__init__(in_features, out_features, blocks, size, bias=bias, device=device, dtype=dtype)
        self.register_buffer("plan", self._plan(), persistent=False)

    def refresh(self) -> None:
        """Compute the plan of the products, after `row_starts` and `columns` were written."""
        plan = self._plan()
        self.plan = self.plan.copy_(plan) if self.plan.device == plan.device else plan

    def product(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias``, computed from the active blocks only."""
        return block_linear(x, self.values, self.bias, self.plan, (self.out_features, self.in_features))

    def _plan(self) -> Tensor:
        return plan_of(self.rows(), self.columns, grid=self.grid, size=self.unit)


class BlockConv1x1(Pointwise, BlockLinear):
    """A convolution with kernel size 1, in 1 to 3 dimensions, that holds only active blocks.

    It is a `BlockLinear` from `in_channels` to `out_channels`, applied at every `stride`-th position of each dimension.
    The other arguments (`args`, `kwargs`) are those of `BlockLinear`.
    """
