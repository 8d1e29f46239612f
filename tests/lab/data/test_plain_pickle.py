import collections
import os
import pickle

import numpy as np
import pytest

from orthosparse.lab.data._plain_pickle import load_plain

# A dictionary with an array as Python 2 and an old numpy wrote it, strings as bytes: the official files are such.
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
    b"(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
    b"K\x00tb\x89U\x06\x00\x01\x02\xfd\xfe\xfftbU\x06labelsq\x08]q\t(K\x06K\teu."
)


class Call:
    def __init__(self, function, *arguments):
        self.made = (function, arguments)

    def __reduce__(self):
        return self.made


def write(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    return path


def test_a_pickle_of_python_2_is_read(tmp_path):
    held = load_plain(write(tmp_path, PYTHON_2))
    assert held["labels"] == [6, 9]
    assert held["data"].tolist() == [[0, 1, 2], [253, 254, 255]]
    assert held["data"].dtype == np.uint8


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_plain_data_is_read_in_every_protocol(tmp_path, protocol):
    held = {"a": [1, 2.5, None, True], "b": (b"\xff\x00", "text"), "c": np.arange(6, dtype=np.uint8).reshape(2, 3)}
    again = load_plain(write(tmp_path, pickle.dumps(held, protocol=protocol)))
    assert again["a"] == held["a"]
    assert again["b"] == held["b"]
    assert np.array_equal(again["c"], held["c"])


@pytest.mark.parametrize(
    "held",
    [
        Call(os.getcwd),
        Call(eval, "1 + 1"),
        Call(getattr, {}, "keys"),
        collections.OrderedDict(a=1),
        np.dtype(np.float64),
        np.zeros(3),
        np.array([{}], dtype=object),
    ],
    ids=["os", "eval", "getattr", "class", "dtype", "floats", "objects"],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_anything_that_is_not_plain_is_refused(tmp_path, held, protocol):
    with pytest.raises(pickle.UnpicklingError):
        load_plain(write(tmp_path, pickle.dumps(held, protocol=protocol)))


def test_files_cut_short_at_any_byte_are_refused(tmp_path):
    for length in range(len(PYTHON_2)):
        with pytest.raises(pickle.UnpicklingError):
            load_plain(write(tmp_path, PYTHON_2[:length]))
