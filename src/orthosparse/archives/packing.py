"""Tensors and CSR tables packed as their active entries and a code of the indices, exact to the last bit."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from orthosparse.archives.gaps import decode, encode
from orthosparse.structures import block_of, grid_of, structure_of, tiled

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


@dataclass(frozen=True)
class Packing:
    """How a tensor was packed, in plain values.

    Attributes:
        masked: whether the entries are those of a mask; otherwise, all that are not +0.0 (-0.0 is kept).
        block: number of rows and columns of the units whose indices are coded; 1 for entries.
        low_bits: parameter of the code of the indices (see `gaps`).
        inverted: whether the indices are those of the inactive units.
        code_bytes: size of the code.
    """

    shape: tuple[int, ...]
    masked: bool
    block: int
    low_bits: int
    inverted: bool
    code_bytes: int

    def __post_init__(self) -> None:
        numbers = (
            (*self.shape, self.block, self.low_bits, self.code_bytes) if isinstance(self.shape, tuple) else (None,)
        )
        flags = self.masked, self.inverted
        if not all(type(number) is int and number >= 0 for number in numbers) or not all(
            type(f) is bool for f in flags
        ):
            raise ValueError(f"expected sizes and flags; got {self}")
        if self.block < 1 or (
            self.block > 1 and (len(self.shape) < 2 or any(side % self.block for side in self.sides))
        ):
            raise ValueError(f"expected blocks that divide {self.shape}; got {self.block}")

    @property
    def size(self) -> int:
        """How many entries the tensor has."""
        return math.prod(self.shape)

    @property
    def sides(self) -> tuple[int, int]:
        """The rows and columns of the tensor as a matrix."""
        return self.shape[0], math.prod(self.shape[1:])


def pack(tensor: Tensor, mask: Tensor | None) -> tuple[Packing, Tensor, Tensor]:
    """Return how a tensor that is zero off its mask is packed, its active entries, and the code of their indices."""
    bits = bits_of(tensor)
    active = bits != 0 if mask is None else mask
    block = block_of(structure_of(active))
    units = grid_of(active, block)
    inverted = bool(units.sum() * 2 > units.numel())
    indices = (units ^ inverted).flatten().nonzero()[:, 0]
    low_bits, code = encode(indices.numpy())
    packing = Packing(tuple(tensor.shape), mask is not None, block, low_bits, inverted, len(code))
    return packing, bits[active].view(tensor.dtype), torch.from_numpy(code)


def unpack(packing: Packing, values: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tensor and the mask that were packed.

    Raises:
        ValueError: the three do not belong together.
    """
    shape, block = packing.shape, packing.block
    units = packing.size // block**2
    active, remainder = divmod(values.numel(), block**2)
    if remainder or active > units or values.dim() != 1 or code.dim() != 1 or code.dtype != torch.uint8:
        raise ValueError(f"expected values and indices of a tensor of shape {shape}; got {values.numel()} values")
    count = units - active if packing.inverted else active
    indices = decode(code.numpy(), count, packing.low_bits, units)
    grid = torch.full((units,), packing.inverted, device="cpu")
    grid[torch.from_numpy(indices)] = not packing.inverted
    if block > 1:
        grid = grid.view(shape[0] // block, -1)
    mask = tiled(grid, block, shape).view(shape)
    bits = torch.zeros(shape, dtype=_INTEGERS[values.element_size()], device="cpu")
    bits[mask] = bits_of(values)
    return bits.view(values.dtype), mask


def is_masked_by(tensor: Tensor, mask: object) -> bool:
    """Whether `mask` is a mask of `tensor`: bool, of its shape, and all bits of the tensor are zero off it."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != tensor.shape:
        return False
    return not bool(bits_of(tensor)[~mask].any())


def bits_of(tensor: Tensor) -> Tensor:
    """Return the bits of a tensor's entries as integers of their size."""
    return tensor.contiguous().view(_INTEGERS[tensor.element_size()])


@dataclass(frozen=True)
class Rows:
    """How the two tables of a CSR matrix were packed, in plain values.

    Attributes:
        rows: number of rows.
        width: one more than the largest column index.
        entries: number of entries in all rows.
        low_bits: parameter of the code of the indices (see `gaps`).
        code_bytes: size of the code.
    """

    rows: int
    width: int
    entries: int
    low_bits: int
    code_bytes: int

    def __post_init__(self) -> None:
        if not all(type(number) is int and number >= 0 for number in vars(self).values()):
            raise ValueError(f"expected sizes; got {self}")


def pack_rows(row_starts: Tensor, columns: Tensor) -> tuple[Rows, Tensor] | None:
    """Return how tables are packed and the code of the indices, or None unless they are int32, columns increasing."""
    if any(table.dtype != torch.int32 or table.dim() != 1 or not len(row_starts) for table in (row_starts, columns)):
        return None
    starts, cols = (table.cpu().numpy().astype(np.int64) for table in (row_starts, columns))
    counts, width = np.diff(starts), int(cols.max(initial=-1)) + 1
    if starts[0] or starts[-1] != len(cols) or (counts < 0).any() or (cols < 0).any():
        return None
    indices = np.repeat(np.arange(len(counts)) * width, counts) + cols
    if (np.diff(indices) <= 0).any():
        return None
    low_bits, code = encode(indices)
    return Rows(len(counts), width, len(cols), low_bits, len(code)), torch.from_numpy(code)


def unpack_rows(packing: Rows, code: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tables that were packed.

    Raises:
        ValueError: sizes and code do not belong together.
    """
    width = packing.width
    indices = decode(code.numpy(), packing.entries, packing.low_bits, packing.rows * width)
    starts = np.searchsorted(indices, np.arange(packing.rows + 1) * width)
    tables = starts, indices % max(width, 1)
    row_starts, columns = (torch.from_numpy(table.astype(np.int32)) for table in tables)
    return row_starts, columns
