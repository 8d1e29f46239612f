import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator

from orthosparse.archives.packing import Packing, Rows, is_masked_by, pack, pack_rows, unpack, unpack_rows
from orthosparse.structures import tiled

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.int8]
DTYPES += [torch.uint16, torch.bool, torch.complex64]


def random_bits(shape, dtype, density, seed):
    """Entries of any bits, not-a-numbers and negative zeros among them, and a mask off which they are zero."""
    generator = Generator().manual_seed(seed)
    mask = torch.rand(shape, generator=generator) < density
    size = torch.empty((), dtype=dtype).element_size()
    high = 2 if dtype is torch.bool else 256
    entries = torch.randint(high, (*shape, size), generator=generator, dtype=torch.uint8)
    entries[~mask] = 0
    return entries.view(dtype).view(shape), mask


def same_bits(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and bytes_of(one) == bytes_of(other)


def bytes_of(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


@given(
    st.lists(st.integers(0, 12), min_size=0, max_size=4).map(tuple),
    st.sampled_from(DTYPES),
    st.sampled_from([0.0, 0.05, 0.5, 0.9, 1.0]),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_any_tensor_comes_back_to_the_last_bit(shape, dtype, density, masked, seed):
    tensor, mask = random_bits(shape, dtype, density, seed)
    packing, values, code = pack(tensor, mask if masked else None)
    again, found = unpack(packing, values, code)
    assert same_bits(again, tensor)
    assert not masked or torch.equal(found, mask)


def test_active_zeros_stay_active_and_negative_zeros_are_entries():
    tensor = torch.tensor([0.0, -0.0, 1.0, 0.0])
    mask = torch.tensor([True, True, True, False])
    assert pack(tensor, mask)[1].numel() == 3
    packing, values, code = pack(tensor, None)
    assert values.numel() == 2
    assert unpack(packing, values, code)[0].signbit().tolist() == [False, True, False, False]


@pytest.mark.parametrize("block", [16, 64])
def test_whole_blocks_are_coded_as_units(block):
    grid = torch.rand(8, 8, generator=Generator().manual_seed(0)) < 0.1
    mask = tiled(grid, block, (8 * block, 8 * block))
    tensor = torch.where(mask, torch.randn(mask.shape, generator=Generator().manual_seed(1)), 0)
    packing, values, code = pack(tensor, mask)
    assert packing.block == block
    assert len(code) <= 9
    again, found = unpack(packing, values, code)
    assert same_bits(again, tensor)
    assert torch.equal(found, mask)


def test_a_full_mask_costs_nothing():
    assert pack(torch.ones(50, 50), torch.ones(50, 50, dtype=torch.bool))[2].numel() == 0


def test_tensors_of_any_layout_in_memory_are_packed():
    tensor = torch.arange(120.0).view(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert torch.equal(unpack(*pack(tensor, None))[0], tensor)
    assert torch.equal(unpack(*pack(tensor.mT, tensor.mT > 7))[1], tensor.mT > 7)


def test_a_mask_is_one_only_where_everything_off_it_is_zero():
    mask = torch.tensor([True, False])
    assert is_masked_by(torch.tensor([1.0, 0.0]), mask)
    assert not is_masked_by(torch.tensor([1.0, -0.0]), mask)
    assert not is_masked_by(torch.tensor([1.0, 2.0]), mask)
    assert not is_masked_by(torch.tensor([1.0, 0.0]), mask.int())
    assert not is_masked_by(torch.tensor([[1.0, 0.0]]), mask)
    assert not is_masked_by(torch.tensor([1.0, 0.0]), None)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": (-1, 4)},
        {"shape": [4, 4]},
        {"shape": (4.0, 4)},
        {"masked": 1},
        {"inverted": None},
        {"block": 0},
        {"block": 3},
        {"low_bits": -1},
        {"low_bits": True},
        {"code_bytes": -1},
    ],
)
def test_a_packing_of_impossible_sizes_is_refused(change):
    plain = {"shape": (4, 4), "masked": True, "block": 1, "low_bits": 0, "inverted": False, "code_bytes": 0}
    with pytest.raises(ValueError, match="expected"):
        Packing(**{**plain, **change})


def test_blocks_need_a_matrix():
    with pytest.raises(ValueError, match="blocks that divide"):
        Packing((16,), True, 16, 0, False, 0)


@pytest.mark.parametrize("change", [-1, 1, 100])
def test_another_number_of_values_is_refused(change):
    tensor, mask = random_bits((9, 9), torch.float32, 0.3, 0)
    packing, values, code = pack(tensor, mask)
    with pytest.raises(ValueError, match="expected"):
        unpack(packing, torch.zeros(len(values) + change), code)


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
