import shutil
from pathlib import Path

import numpy as np
import pytest

from orthosparse.lab.data import Augmentation, load

FIXTURES = Path(__file__).parents[2] / "fixtures"
BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def records(file):
    return np.fromfile(FIXTURES / "cifar-10-batches-bin" / f"{file}.bin", np.uint8).reshape(-1, 3073)


@pytest.fixture
def root(tmp_path):
    shutil.copytree(FIXTURES / "cifar-10-batches-bin", tmp_path / "cifar-10-batches-bin")
    return tmp_path


def write_100(root, train=80, test=16, top=99):
    """CIFAR-100 out of real CIFAR-10 images, with labels of our own."""
    (root / "cifar-100-binary").mkdir()
    pixels = np.concatenate([records(batch)[:, 1:] for batch in BATCHES])
    for file, start, size in (("train", 0, train), ("test", 80, test)):
        part = pixels[start : start + size]
        fine = np.linspace(0, top, size).astype(np.uint8)
        joined = np.concatenate([np.full((size, 1), 3, np.uint8), fine[:, None], part], axis=1)
        (root / "cifar-100-binary" / f"{file}.bin").write_bytes(joined.tobytes())


def test_pixels_are_red_green_and_blue_planes():
    found, record = load("cifar10", FIXTURES), records("test_batch")[3]
    assert np.array_equal(found.test.images[3, 1].numpy(), record[1 + 1024 : 1 + 2048].reshape(32, 32))


def test_scaled_up_pixels_are_three_parts_of_the_nearest_and_one_of_the_next():
    small, large = load("cifar10", FIXTURES), load("cifar10_64", FIXTURES)
    assert (large.name, large.in_shape, large.classes) == ("cifar10_64", (3, 64, 64), 10)
    assert large.augmentation == Augmentation(pad=8, pad_mode="reflect", flip=True)
    for split in ("train", "validation", "test"):
        before, after = getattr(small, split), getattr(large, split)
        assert after.images.dtype == before.images.dtype
        assert after.labels.equal(before.labels)
        pixels = before.images.numpy().astype(float)
        for axis in (2, 3):
            edge = np.pad(pixels, [(0, 0)] * axis + [(1, 1)] + [(0, 0)] * (3 - axis), "edge")
            before_it, after_it = (np.take(edge, range(s, s + 32), axis) for s in (0, 2))
            halves = [(3 * pixels + before_it) / 4, (3 * pixels + after_it) / 4]
            shape = [64 if each == axis else side for each, side in enumerate(pixels.shape)]
            pixels = np.stack(halves, axis + 1).reshape(shape)
        assert np.array_equal(after.images.numpy(), np.rint(pixels))


def test_cifar100_reads_its_fine_labels_and_pads_with_zeros(tmp_path):
    write_100(tmp_path)
    found = load("cifar100", tmp_path)
    assert (len(found.train), len(found.validation), len(found.test), found.classes) == (72, 8, 16, 100)
    assert found.train.labels[0] == 0
    assert found.validation.labels[-1] == 99
    assert found.augmentation == Augmentation(pad=4, pad_mode="zero", flip=True)
    assert found.normalisation.std == (0.26733, 0.25644, 0.27615)
    assert len(load("cifar100", tmp_path, validation=False).train) == 80


def test_truncated_files_are_named_with_what_was_expected(root):
    path = root / "cifar-10-batches-bin/data_batch_3.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with pytest.raises(ValueError, match=r"data_batch_3.bin: expected a whole number of records of 3073 bytes"):
        load("cifar10", root)
    path.write_bytes(whole[:-3073])  # cut between two records
    with pytest.raises(ValueError, match=r"equally many images in each data_batch; got .*'data_batch_3': 15"):
        load("cifar10", root)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"data_batch_3.bin: expected images with labels below 10; got 0 images"):
        load("cifar10", root)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"cifar10: expected .*data_batch_3.bin; .orthosparse data cifar10"):
        load("cifar10", root)


def test_cifar100_cut_between_records_is_noticed(tmp_path):
    write_100(tmp_path, train=79)
    with pytest.raises(ValueError, match="five times as many images in train as in test; got 79 and 16"):
        load("cifar100", tmp_path)


def test_labels_outside_the_classes_are_refused(tmp_path):
    write_100(tmp_path, top=100)
    with pytest.raises(ValueError, match="expected images with labels below 100"):
        load("cifar100", tmp_path)
