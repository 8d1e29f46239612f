"""The table: names, splits, normalisation and augmentation as the paper's experiments have them."""

from pathlib import Path

import pytest
import torch

from orthosparse.lab.data import DATA, Augmentation, Files, Loader, Normalisation, Split, load
from orthosparse.lab.data._splits import hold_out

FIXTURES = Path(__file__).parents[2] / "fixtures"


def everything(split):
    (batch,) = Loader(split, train=False, batch=len(split)).epoch(0)
    return batch


@pytest.mark.parametrize(("name", "train", "held", "test"), [("mnist", 360, 40, 100), ("cifar10", 72, 8, 16)])
def test_validation_is_the_last_tenth_by_index(name, train, held, test):
    found, whole = load(name, FIXTURES), load(name, FIXTURES, validation=False)
    assert (len(found.train), len(found.validation), len(found.test)) == (train, held, test)
    assert whole.validation is None
    assert torch.equal(torch.cat([found.train.images, found.validation.images]), whole.train.images)
    assert torch.equal(torch.cat([found.train.labels, found.validation.labels]), whole.train.labels)


def test_settings_are_the_papers():
    mnist, cifar = load("mnist", FIXTURES), load("cifar10", FIXTURES)
    assert (mnist.classes, mnist.in_shape, mnist.augmentation) == (10, (1, 28, 28), None)
    assert (mnist.normalisation.mean, mnist.normalisation.std) == ((0.1307,), (0.3081,))
    assert (cifar.classes, cifar.in_shape) == (10, (3, 32, 32))
    assert cifar.normalisation.mean == (0.4914, 0.4822, 0.4465)
    assert cifar.normalisation.std == (0.2023, 0.1994, 0.2010)
    assert cifar.augmentation == Augmentation(pad=4, pad_mode="reflect", flip=True)


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_batches_are_the_pixels_normalised(name):
    found = load(name, FIXTURES)
    x, y = everything(found.test)
    mean, std = (torch.tensor(value).view(1, -1, 1, 1) for value in (found.normalisation.mean, found.normalisation.std))
    torch.testing.assert_close(x, (found.test.images / 255 - mean) / std, atol=1e-5, rtol=1e-5)
    assert x.dtype == torch.float32
    assert torch.equal(y, found.test.labels)


@pytest.mark.parametrize(("samples", "kept", "batches"), [(60_000, 54_000, 422), (50_000, 45_000, 352)])
def test_epochs_are_as_long_as_in_the_papers_runs(samples, kept, batches):
    files, labels = Files((Path("never read"),) * samples, 8), torch.zeros(samples, dtype=torch.int64)
    train, held = hold_out(Split(files, labels, Normalisation((0.0,), (1.0,))), validation=True)
    assert (len(train), len(held), len(Loader(train, batch=128))) == (kept, samples - kept, batches)


def test_known_samples_come_out():
    # The first labels of MNIST and of CIFAR-10 (frog, truck, truck, deer, automobile).
    assert load("mnist", FIXTURES).train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert load("cifar10", FIXTURES).train.labels[:5].tolist() == [6, 9, 9, 4, 1]


def test_digits_are_normalised_and_split_by_index():
    found = load("digits")
    x, y = everything(load("digits", validation=False).train)
    assert (x.mean().item(), x.std().item()) == (pytest.approx(0, abs=2e-3), pytest.approx(1, abs=2e-3))
    assert (len(found.train), len(found.validation), len(found.test)) == (1294, 143, 360)
    assert sorted(set(y.tolist())) == list(range(10))
    assert found.train.images.dtype == torch.uint8


def test_unknown_names_and_missing_folders_are_answered_with_what_to_do(tmp_path):
    with pytest.raises(ValueError, match=r"data: expected one of cifar10, .* or path/to/file.py:function; got 'svhn'"):
        load("svhn", tmp_path)
    with pytest.raises(ValueError, match="root: expected the folder that holds mnist; got None"):
        load("mnist")
    for name in set(DATA) - {"digits"}:
        files = name.removesuffix("_64")  # larger pictures, made of the same files
        with pytest.raises(FileNotFoundError, match=rf"{files}: expected .*orthosparse data {files} --root {tmp_path}"):
            load(name, tmp_path)


def test_the_command_that_fetches_a_set_can_be_pasted_where_the_folder_has_a_space(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"`orthosparse data mnist --root '{tmp_path}/my data'`"):
        load("mnist", tmp_path / "my data")


def test_of_fewer_than_ten_samples_none_is_held_out():
    labels = torch.arange(9)
    split = Split(torch.zeros(9, 1, 2, 2), labels, Normalisation((0.0,), (1.0,)))
    train, held = hold_out(split, validation=True)
    assert (len(train), held) == (9, None)
