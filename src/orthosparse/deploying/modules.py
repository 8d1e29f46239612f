"""Layers for inference that hold only the nonzero entries of their weight."""

import math

import torch
from torch import Tensor, nn

from orthosparse.operators import Geometry, convolution_inference, csr_inference, starts_of


class Entries(nn.Module):
    """The base of both layers: values ``[1, entries]``, and their indices as in a CSR matrix."""

    groups = 1

    values: Tensor
    bias: Tensor | None
    row_starts: Tensor
    columns: Tensor

    def __init__(
        self, rows: Tensor, columns: Tensor, values: Tensor, bias: Tensor | None, shape: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.shape = shape
        self.values = nn.Parameter(values.clone()[None], requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.clone(), requires_grad=False)
        self.register_buffer("row_starts", starts_of(rows, shape[0]).to(torch.int32))
        self.register_buffer("columns", columns.to(torch.int32))

    @property
    def weight(self) -> Tensor:
        """The dense weight, zeros included; it is computed, and cannot be assigned."""
        rows = torch.arange(self.shape[0], device=self.columns.device).repeat_interleave(self.row_starts.diff())
        width = math.prod(self.shape[1:])
        columns = self.columns - rows // (self.shape[0] // self.groups) * width
        weight = self.values.new_zeros(self.shape[0], width)
        weight[rows, columns] = self.values[0]
        return weight.view(self.shape)

    @property
    def density(self) -> float:
        """The fraction of weights that are nonzero."""
        return self.values.numel() / max(1, math.prod(self.shape))

    def extra_repr(self) -> str:
        """Return shape and density of the weight."""
        return f"{'x'.join(map(str, self.shape))}, bias={self.bias is not None}, density={self.density:.4g}"


class EntriesLinear(Entries):
    """A linear layer for inference that holds only nonzero entries.

    Attributes:
        features_first: whether the output is stored features first, for another such layer to read.
    """

    def __init__(self, layer: nn.Linear) -> None:
        rows, columns = layer.weight.nonzero(as_tuple=True)
        super().__init__(rows, columns, layer.weight[rows, columns], layer.bias, tuple(layer.weight.shape))
        self.out_features, self.in_features = self.shape
        self.features_first = False

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as torch's layers call it
        """Return ``input @ weight.T + bias``."""
        tables = self.row_starts, self.columns
        inputs, first = self.in_features, self.features_first
        return csr_inference(input, self.values, self.bias, *tables, inputs=inputs, features_first=first)


class EntriesConv(Entries):
    """A convolution in 1 to 3 dimensions for inference that holds only nonzero entries; its padding is zeros."""

    padding_mode = "zeros"

    def __init__(self, layer: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> None:
        weight, groups = layer.weight.flatten(2), layer.groups
        rows, channels, taps = weight.nonzero(as_tuple=True)
        group = rows // (len(weight) // groups)
        columns = (group * weight.shape[1] + channels) * weight.shape[2] + taps
        super().__init__(rows, columns, weight[rows, channels, taps], layer.bias, tuple(layer.weight.shape))
        assert not isinstance(layer.padding, str)
        self.in_channels, self.out_channels, self.groups = layer.in_channels, layer.out_channels, groups
        self.kernel_size, self.stride = layer.kernel_size, layer.stride
        self.padding, self.dilation = layer.padding, layer.dilation
        self.geometry = Geometry(self.kernel_size, self.stride, self.padding, self.dilation)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as torch's layers call it
        """Return the convolution of the input, as torch's layers do."""
        if input.dim() == len(self.kernel_size) + 1:  # one sample without a batch
            return self.forward(input[None])[0]
        return convolution_inference(
            input,
            self.values,
            self.bias,
            self.row_starts,
            self.columns,
            inputs=self.in_channels,
            geometry=self.geometry,
        )
