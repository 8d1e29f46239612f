import gzip
import shutil
import struct
from pathlib import Path

import pytest
import torch

from orthosparse.lab.data import load

FIXTURES = Path(__file__).parents[2] / "fixtures"
IMAGES = "train-images-idx3-ubyte"


@pytest.fixture
def root(tmp_path):
    shutil.copytree(FIXTURES / "MNIST", tmp_path / "MNIST")
    return tmp_path


def damage(root, data):
    (root / "MNIST/raw" / IMAGES).write_bytes(data)


def original():
    return gzip.decompress((FIXTURES / f"MNIST/raw/{IMAGES}.gz").read_bytes())


def test_raw_and_gzipped_files_hold_the_same(root):
    for path in (root / "MNIST/raw").glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    raw, zipped = load("mnist", root), load("mnist", FIXTURES)
    assert torch.equal(raw.train.images, zipped.train.images)
    assert torch.equal(raw.test.labels, zipped.test.labels)


def test_fashion_mnist_has_its_own_folder_and_normalisation(root):
    with pytest.raises(FileNotFoundError, match=r"fashion_mnist: expected .*FashionMNIST"):
        load("fashion_mnist", root)
    (root / "MNIST").rename(root / "FashionMNIST")
    found = load("fashion_mnist", root)
    assert (found.normalisation.mean, found.normalisation.std) == ((0.2860,), (0.3530,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "expected 313616 bytes for sizes .*; got 313615"),
        (lambda data: data + b"\0", "expected 313616 bytes .*; got 313617"),
        (lambda data: data[:10], "expected an IDX header"),
        (lambda data: b"", "expected an IDX header"),
        (lambda data: b"\0\0\x0d" + data[3:], "expected an IDX header of unsigned bytes in 3 dimensions; got 00000d03"),
    ],
)
def test_damaged_files_are_named_with_what_was_expected(root, change, message):
    damage(root, change(original()))
    with pytest.raises(ValueError, match=rf"mnist: .*{IMAGES}: {message}.*orthosparse data mnist --root"):
        load("mnist", root)


def test_a_truncated_gzip_is_named(root):
    path = root / f"MNIST/raw/{IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=rf"{IMAGES}.gz: expected a gzip file"):
        load("mnist", root)


def test_images_and_labels_have_to_agree(root):
    damage(root, struct.pack(">4i", 2051, 399, 28, 28) + original()[16 : 16 + 399 * 784])
    with pytest.raises(ValueError, match=r"expected 28 x 28 train images with a label .*399.*400 labels"):
        load("mnist", root)
    damage(root, original())
    labels = root / "MNIST/raw/train-labels-idx1-ubyte"
    labels.write_bytes(struct.pack(">2i", 2049, 400) + bytes([10] * 400))
    with pytest.raises(ValueError, match=r"label from 0 to 9 .*labels up to 10"):
        load("mnist", root)
