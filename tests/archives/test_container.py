import hashlib
import json

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthosparse.archives.container import from_bytes, to_bytes

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([True, False]), "c": torch.tensor(7)}
DATA = to_bytes(TENSORS, {"format": 1, "text": 'ä "quoted"'})


def test_tensors_and_description_come_back():
    tensors, description = from_bytes(DATA)
    assert description == {"format": 1, "text": 'ä "quoted"'}
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[key], TENSORS[key]) for key in TENSORS)


def test_equal_contents_make_equal_bytes():
    assert to_bytes(dict(reversed(TENSORS.items())), {"format": 1, "text": 'ä "quoted"'}) == DATA


def test_any_reader_of_safetensors_can_read_it():
    assert torch.equal(safetensors.torch.load(DATA)["a"], TENSORS["a"])


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_any_changed_byte_is_found(place, change):
    changed = bytearray(DATA)
    changed[place] ^= change
    with pytest.raises(ValueError, match="expected"):
        from_bytes(bytes(changed))


@given(st.integers(0, len(DATA) - 1))
def test_a_file_that_was_cut_is_found(length):
    with pytest.raises(ValueError, match="expected"):
        from_bytes(DATA[:length])


def test_bytes_after_the_end_are_found():
    with pytest.raises(ValueError, match="its checksum is another"):
        from_bytes(DATA + b"\0")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04.",
        safetensors.torch.save(TENSORS),
        safetensors.torch.save(TENSORS, {"orthosparse": "7"}),
        safetensors.torch.save(TENSORS, {"orthosparse": "[" * 100_000}),
        safetensors.torch.save(TENSORS, {"orthosparse": '{"sha256": 7}'}),
        safetensors.torch.save(TENSORS, {"orthosparse": '{"sha256": ""}'}),
        b"\xff" * 100,
    ],
)
def test_other_files_are_refused(data):
    with pytest.raises(ValueError, match="expected a file that save_compact wrote"):
        from_bytes(data)


@pytest.mark.parametrize("entry", [{"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}, {"dtype": "F32"}, 7])
def test_a_header_that_safetensors_cannot_read_is_refused_under_a_right_checksum(entry):
    blank = "0" * 64
    header = {"__metadata__": {"orthosparse": json.dumps({"sha256": blank})}, "a": entry}
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(4)
    forged = data.replace(blank.encode(), hashlib.sha256(data).hexdigest().encode(), 1)
    with pytest.raises(ValueError, match="expected a file that save_compact wrote"):
        from_bytes(forged)
