"""Convolutions of any number of taps that hold only the active entries of their weight, for the CPU."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from orthosparse.checks import check_per_side
from orthosparse.modules.pointwise import CONVOLUTIONS
from orthosparse.modules.sparse import Entries
from orthosparse.operators import Geometry, csr_convolution, transposed_tables


class SparseConv(Entries):
    """A convolution in 1 to 3 dimensions that holds only active entries: ``values`` is ``[1, entries]``, zero at first.

    It runs on the CPU, in float32 and float64 (in float32 under autocast), with a compiled kernel. The output is
    contiguous. As a matrix, the weight has ``out_channels`` rows and ``in_channels / groups * taps`` columns.

    Args:
        in_channels: as in `torch.nn.Conv2d`.
        out_channels: as in `torch.nn.Conv2d`.
        kernel_size: the number of taps in each of the 1 to 3 dimensions.
        entries: number of active weights.
        stride: one number, or one for each dimension.
        padding: one number, or one for each dimension; or "same" or "valid".
        dilation: one number, or one for each dimension.
        groups: as in `torch.nn.Conv2d`.
        padding_mode: as in `torch.nn.Conv2d`.
        bias: as in `torch.nn.Conv2d`.
        device: device of `values` and the bias.
        dtype: type of `values` and the bias.

    Raises:
        ValueError: `entries` is more than the weight has, or sizes do not fit each other.

    Example:
        >>> layer = SparseConv(4, 6, (3, 3), entries=20, padding=1)
        >>> layer(torch.ones(2, 4, 8, 8)).shape, layer.values.shape, layer.weight.shape
        (torch.Size([2, 6, 8, 8]), torch.Size([1, 20]), torch.Size([6, 4, 3, 3]))
    """

    tables = ("input_starts", "input_taps", "by_input")

    input_starts: Tensor
    input_taps: Tensor
    by_input: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sequence[int],
        entries: int,
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        sides = len(kernel_size)
        if sides not in CONVOLUTIONS:
            raise ValueError(f"kernel_size: expected one to three numbers; got {kernel_size!r}")
        kernel_size = check_per_side(kernel_size, sides, "kernel_size", least=1)
        options = {
            "stride": check_per_side(stride, sides, "stride", least=1),
            "padding": padding if isinstance(padding, str) else check_per_side(padding, sides, "padding", least=0),
            "dilation": check_per_side(dilation, sides, "dilation", least=1),
            "groups": groups,
            "padding_mode": padding_mode,
        }
        # Torch's layer, on the meta device, checks that sizes fit each other.
        plain = CONVOLUTIONS[sides](in_channels, out_channels, kernel_size, bias=False, device="meta", **options)
        features = in_channels // groups * math.prod(kernel_size)
        super().__init__(features, out_channels, entries, bias=bias, device=device, dtype=dtype)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel_size
        self.stride, self.padding, self.dilation = plain.stride, plain.padding, plain.dilation
        self.groups, self.padding_mode, self._options = groups, padding_mode, options
        self._sizes = plain.extra_repr().replace(", bias=False", "")
        ends = _padded(plain)
        self._pads: list[int] = []  # padding by torch beforehand: the kernel pads with zeros, equally at both ends
        if padding_mode != "zeros" or any(before != after for before, after in ends):
            self._pads, ends = [number for pair in reversed(ends) for number in pair], [(0, 0)] * sides
        self.geometry = Geometry(kernel_size, self.stride, tuple(before for before, _ in ends), self.dilation)
        self.register_tables()

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of the whole weight, as a convolution has it."""
        return self.out_channels, self.in_channels // self.groups, *self.kernel_size

    def plain(self) -> nn.Module:
        """Return the layer of torch that computes the same, on the meta device and without a bias."""
        kind = CONVOLUTIONS[len(self.kernel_size)]
        sizes = self.in_channels, self.out_channels, self.kernel_size
        return kind(*sizes, bias=False, device="meta", **self._options)  # type: ignore[no-any-return]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as torch's layers call it
        """Return the convolution of ``[batch, channels, *spatial]``, or of ``[channels, *spatial]``."""
        if input.dim() == len(self.kernel_size) + 1:
            return self.forward(input[None])[0]
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        x = functional.pad(input, self._pads, mode) if self._pads else input
        if not self.needs_dense():
            return self.product(x)
        _, stride, padding, dilation = self.geometry
        convolve: Any = getattr(functional, f"conv{len(stride)}d")
        return convolve(x, self.weight, self.bias, stride, padding, dilation, self.groups)  # type: ignore[no-any-return]

    def product(self, x: Tensor) -> Tensor:
        """Return the convolution, computed from the active entries only.

        Raises:
            RuntimeError: the values are not on the CPU, or neither float32 nor float64.
        """
        self.check_kernel()
        tables = self.row_starts, self._columns(), self.input_starts, self.input_taps, self.by_input
        return csr_convolution(x, self.values, self.bias, *tables, inputs=self.in_channels, geometry=self.geometry)

    def extra_repr(self) -> str:
        """Return sizes and density."""
        return f"{self._sizes}, bias={self.bias is not None}, density={self.density:.4g}"

    def compute_tables(self) -> tuple[Tensor, ...]:
        """Return the tables of the gradient of the inputs."""
        return transposed_tables(self.rows(), self._columns(), self.in_channels, self.geometry)

    def _columns(self) -> Tensor:
        """The columns of the entries, of channels counted over all groups."""
        if self.groups == 1:
            return self.columns
        return self.columns + self.rows() // (self.out_channels // self.groups) * self.in_features


def _padded(layer: Any) -> list[tuple[int, int]]:
    """How many pixels a convolution adds at both ends of each side."""
    if layer.padding == "valid":
        return [(0, 0)] * len(layer.kernel_size)
    if layer.padding == "same":
        totals = [dilation * (taps - 1) for taps, dilation in zip(layer.kernel_size, layer.dilation, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(padding, padding) for padding in layer.padding]
