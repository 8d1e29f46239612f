"""Linear layers and 1 x 1 convolutions that hold only the active entries of their weight, for the CPU."""

from typing import Any

import torch
from torch import Tensor

from orthosparse.checks import check_at_least
from orthosparse.modules.compact_module import Compact
from orthosparse.modules.pointwise import Pointwise
from orthosparse.operators import csr_linear, csr_tables


class Entries(Compact):
    """The base of modules whose units are single entries: ``values`` is ``[1, entries]``.

    Attributes:
        tables: the buffers that are computed from `row_starts` and `columns`, for the products of the backward pass.
    """

    tables: tuple[str, ...]

    def __init__(
        self,
        in_features: int,
        out_features: int,
        entries: int,
        *,
        bias: bool,
        device: Any,
        dtype: torch.dtype | None,
    ) -> None:
        check_at_least(entries, 0, "entries")
        super().__init__(in_features, out_features, entries, 1, bias=bias, device=device, dtype=dtype)

    def compute_tables(self) -> tuple[Tensor, ...]:
        """Return the tables."""
        raise NotImplementedError

    def register_tables(self) -> None:
        """Register the tables as buffers that no state dict holds."""
        for name, table in zip(self.tables, self.compute_tables(), strict=True):
            self.register_buffer(name, table, persistent=False)

    def refresh(self) -> None:
        """Compute the tables, after `row_starts` and `columns` were written."""
        for name, table in zip(self.tables, self.compute_tables(), strict=True):
            before = self._buffers[name]
            assert before is not None
            setattr(self, name, before.copy_(table) if before.device == table.device else table)

    def check_kernel(self) -> None:
        """Raise unless there is a kernel for the values.

        Raises:
            RuntimeError: they are not on the CPU, or neither float32 nor float64.
        """
        values = self.values
        if values.device.type not in ("cpu", "meta") or values.dtype not in (torch.float32, torch.float64):
            raise RuntimeError(
                f"{type(self).__name__}: expected float32 or float64 on the CPU, where single entries have a kernel; "
                f"got {values.dtype} on {values.device} (orthosparse.expand(model) makes it a masked layer)"
            )


class SparseLinear(Entries):
    """A linear layer that holds only active entries: ``values`` has shape ``[1, entries]`` and starts at zero.

    It runs on the CPU, in float32 and float64 (in float32 under autocast), with a compiled kernel, or with torch's CSR
    tensors if the package was built without a compiler.

    Args:
        in_features: as in `torch.nn.Linear`.
        out_features: as in `torch.nn.Linear`.
        bias: as in `torch.nn.Linear`.
        device: device of `values` and the bias.
        dtype: type of `values` and the bias.
        entries: number of active weights.

    Raises:
        ValueError: `entries` is more than the weight has.

    Example:
        >>> layer = SparseLinear(8, 4, entries=3)
        >>> layer(torch.ones(5, 8)).shape, layer.values.shape, layer.weight.shape
        (torch.Size([5, 4]), torch.Size([1, 3]), torch.Size([4, 8]))
    """

    tables = ("column_starts", "column_rows", "by_column")

    column_starts: Tensor
    column_rows: Tensor
    by_column: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        entries: int,
        *,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, entries, bias=bias, device=device, dtype=dtype)
        self.register_tables()

    def product(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias``, computed from the active entries only.

        Raises:
            RuntimeError: the values are not on the CPU, or neither float32 nor float64.
        """
        self.check_kernel()
        tables = self.row_starts, self.columns, self.column_starts, self.column_rows, self.by_column
        return csr_linear(x, self.values, self.bias, *tables)

    def compute_tables(self) -> tuple[Tensor, ...]:
        """Return the indices of the entries in the transposed matrix."""
        return csr_tables(self.rows(), self.columns, self.grid)[2:]


class SparseConv1x1(Pointwise, SparseLinear):
    """A convolution with kernel size 1, in 1 to 3 dimensions, that holds only active entries.

    It is a `SparseLinear` from `in_channels` to `out_channels`, applied at every `stride`-th position of each
    dimension. The other arguments (`args`, `kwargs`) are those of `SparseLinear`.
    """
