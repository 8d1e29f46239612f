"""Tables of compressed rows, as layers for inference hold them, as one code of the places of their entries."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from orthosparse.archives.gaps import decode, encode


@dataclass(frozen=True)
class Rows:
    """How two tables were packed, in plain values.

    Attributes:
        rows: how many there are.
        width: one more than the last column.
        entries: how many there are in all rows.
        low_bits: of the code of the places (see `gaps`).
        code_bytes: of the code.
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
    """Return how tables are packed and the code of the places; None if they are not int32 tables of rising columns."""
    if any(table.dtype != torch.int32 or table.dim() != 1 or not len(row_starts) for table in (row_starts, columns)):
        return None
    starts, found = (table.cpu().numpy().astype(np.int64) for table in (row_starts, columns))
    counts, width = np.diff(starts), int(found.max(initial=-1)) + 1
    if starts[0] or starts[-1] != len(found) or (counts < 0).any() or (found < 0).any():
        return None
    places = np.repeat(np.arange(len(counts)) * width, counts) + found
    if (np.diff(places) <= 0).any():
        return None
    low_bits, code = encode(places)
    return Rows(len(counts), width, len(found), low_bits, len(code)), torch.from_numpy(code)


def unpack_rows(packing: Rows, code: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tables that were packed.

    Raises:
        ValueError: sizes and code do not belong together.
    """
    width = packing.width
    places = decode(code.numpy(), packing.entries, packing.low_bits, packing.rows * width)
    starts = np.searchsorted(places, np.arange(packing.rows + 1) * width)
    tables = starts, places % max(width, 1)
    row_starts, columns = (torch.from_numpy(table.astype(np.int32)) for table in tables)
    return row_starts, columns
