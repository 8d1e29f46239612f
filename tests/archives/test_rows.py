import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthosparse.archives.rows import Rows, pack_rows, unpack_rows


def tables(mask):
    """The tables of compressed rows by numpy's own means."""
    rows, columns = np.nonzero(mask)
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(mask)))])
    return [torch.from_numpy(table.astype(np.int32)) for table in (starts, columns)]


@given(st.integers(0, 20), st.integers(0, 30), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.integers(0, 2**31))
def test_tables_come_back(rows, width, density, seed):
    given = tables(np.random.default_rng(seed).random((rows, width)) < density)
    again = unpack_rows(*pack_rows(*given))
    assert all(torch.equal(one, other) and one.dtype == torch.int32 for one, other in zip(given, again, strict=True))


def test_a_place_takes_a_few_bits():
    given = tables(np.random.default_rng(0).random((300, 400)) < 0.1)
    assert len(pack_rows(*given)[1]) < 0.65 * len(given[1])  # bytes; 4.8 of 8 bits, and rounding


@pytest.mark.parametrize(
    ("row_starts", "columns"),
    [
        ([0, 2], [1, 1]),
        ([0, 2], [2, 1]),
        ([0, 1], [0, 1]),
        ([1, 2], [0, 1]),
        ([0, 3, 2], [0, 1]),
        ([0, 1], [-1]),
        ([], []),
    ],
)
def test_what_is_no_such_table_is_left_alone(row_starts, columns):
    as_table = (torch.tensor(each, dtype=torch.int32) for each in (row_starts, columns))
    assert pack_rows(*as_table) is None


def test_other_types_and_shapes_are_left_alone():
    starts, columns = tables(np.eye(3))
    assert pack_rows(starts.long(), columns) is None
    assert pack_rows(starts, columns.float()) is None
    assert pack_rows(starts, columns[None]) is None


@pytest.mark.parametrize("change", [{"rows": -1}, {"width": 1.0}, {"entries": None}, {"low_bits": True}])
def test_impossible_sizes_are_refused(change):
    with pytest.raises(ValueError, match="expected sizes"):
        Rows(**{"rows": 1, "width": 1, "entries": 1, "low_bits": 0, "code_bytes": 1, **change})


def test_another_number_of_entries_is_refused():
    sizes, code = pack_rows(*tables(np.eye(5)))
    with pytest.raises(ValueError, match="expected the code"):
        unpack_rows(Rows(**vars(sizes) | {"entries": 6}), code)
