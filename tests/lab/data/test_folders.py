import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from orthosparse.lab.data import Augmentation, Files, Loader, load

DIGITS = load_digits()
CLASSES = {"n03": 3, "n01": 1, "n07": 7}  # sorted by name: 1, 3, 7
ORDER = [1, 3, 7]


def picture(index, size):
    """A real digit as an RGB image."""
    grey = Image.fromarray((DIGITS.images[index] * 15).astype(np.uint8))
    return grey.resize((size, size)).convert("RGB")


def samples(digit, start, stop):
    return np.flatnonzero(digit == DIGITS.target)[start:stop]


def write_train(folder, size, inner="images", suffix="png"):
    for name, digit in CLASSES.items():
        place = folder / name / inner
        place.mkdir(parents=True)
        for index in samples(digit, 0, 5):
            picture(index, size).save(place / f"{name}_{index}.{suffix}")


@pytest.fixture
def tiny(tmp_path):
    folder = tmp_path / "tiny-imagenet-200"
    write_train(folder / "train", 64)
    (folder / "val/images").mkdir(parents=True)
    lines = []
    for number, (name, digit) in enumerate(CLASSES.items()):
        picture(samples(digit, 5, 6)[0], 64).save(folder / "val/images" / f"val_{number}.png")
        lines.append(f"val_{number}.png\t{name}\t0\t0\t63\t63\n")
    (folder / "val/val_annotations.txt").write_text("".join(lines))
    return tmp_path


@pytest.fixture
def imagenet(tmp_path):
    for part in ("train", "val"):
        write_train(tmp_path / "imagenet" / part, 40, inner="", suffix="JPEG")
    return tmp_path


def test_tiny_imagenet_lies_in_memory_with_labels_by_sorted_class(tiny):
    found = load("tiny_imagenet", tiny)
    assert found.train.images.shape == (15, 3, 64, 64)
    assert found.train.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    first = sorted((tiny / "tiny-imagenet-200/train/n01/images").iterdir())[0]
    assert np.array_equal(found.train.images[0].permute(1, 2, 0).numpy(), np.asarray(Image.open(first)))
    assert (found.classes, found.in_shape) == (3, (3, 64, 64))
    assert found.augmentation == Augmentation(pad=4, hue=0.05, saturation=0.05, flip=True, rotation=10)


def test_the_annotated_validation_images_are_validation_and_test(tiny):
    found = load("tiny_imagenet", tiny)
    assert found.validation is found.test or torch.equal(found.validation.images, found.test.images)
    assert [ORDER[label] for label in found.test.labels] == [3, 1, 7]
    assert load("tiny_imagenet", tiny, validation=False).validation is None


def test_validation_images_moved_into_folders_by_class_are_found_too(tiny):
    annotated = load("tiny_imagenet", tiny)
    folder = tiny / "tiny-imagenet-200/val"
    for number, name in enumerate(CLASSES):
        (folder / name).mkdir()
        shutil.move(folder / "images" / f"val_{number}.png", folder / name)
    (folder / "images").rmdir()
    moved = load("tiny_imagenet", tiny)
    assert moved.test.labels.tolist() == [0, 1, 2]
    assert torch.equal(moved.test.images[[1, 0, 2]], annotated.test.images)


def test_tiny_imagenet_trains_on_tinted_and_turned_images(tiny):
    found = load("tiny_imagenet", tiny)
    x, y = next(Loader(found.train, batch=15, recipe=found.augmentation, seed=0).epoch(0))
    assert x.shape == (15, 3, 64, 64)
    assert sorted(y.tolist()) == found.train.labels.tolist()
    assert -1 <= x.min() < x.max() <= 1


def test_images_in_files_are_decoded_when_a_batch_needs_them(imagenet):
    found = load("imagenet", imagenet)
    assert isinstance(found.train.images, Files)
    assert found.in_shape == (3, 224, 224)
    ((x, y),) = Loader(found.test, batch=15, train=False, workers=0).epoch(0)
    assert x.shape == (15, 3, 224, 224)
    assert torch.equal(y, found.test.labels)
    # Resize to 256, then the 224 pixels in the middle, as the usual two steps.
    whole = Image.open(found.test.images.paths[0]).convert("RGB").resize((256, 256), Image.Resampling.BILINEAR)
    crop = torch.from_numpy(np.asarray(whole.crop((16, 16, 240, 240))).copy()).permute(2, 0, 1) / 255
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (found.normalisation.mean, found.normalisation.std))
    assert (x[0] - (crop - mean) / std).abs().max() < 0.1


@pytest.mark.parametrize("workers", [0, 2])
def test_augmented_files_do_not_depend_on_workers_first_step_or_rank(imagenet, workers):
    found = load("imagenet", imagenet)
    options = {"batch": 4, "recipe": found.augmentation, "seed": 3}
    before = torch.get_rng_state()
    whole = list(Loader(found.train, workers=0, **options).epoch(2))
    late = list(Loader(found.train, workers=workers, **options).epoch(2, start=2))
    share = list(Loader(found.train, workers=workers, rank=1, world=2, **options).epoch(2))
    assert torch.equal(torch.get_rng_state(), before)
    for (x, y), (late_x, late_y) in zip(whole[2:], late, strict=True):
        assert torch.equal(x, late_x)
        assert torch.equal(y, late_y)
    for (x, y), (part_x, part_y) in zip(whole, share, strict=True):
        assert torch.equal(x[1::2], part_x)
        assert torch.equal(y[1::2], part_y)
    other = next(Loader(found.train, workers=0, **options).epoch(3))
    assert not torch.equal(other[0], whole[0][0])


def test_damaged_missing_and_odd_files_are_named(tiny):
    folder = tiny / "tiny-imagenet-200"
    victim = sorted((folder / "train/n03/images").iterdir())[2]
    kept = victim.read_bytes()
    victim.write_bytes(kept[:60])
    with pytest.raises(ValueError, match=rf"{victim.name}: expected an image; it cannot be decoded"):
        load("tiny_imagenet", tiny)
    picture(0, 32).save(victim)
    with pytest.raises(ValueError, match=rf"{victim.name}: expected an image of \(3, 64, 64\); got \(3, 32, 32\)"):
        load("tiny_imagenet", tiny)
    victim.write_bytes(kept)
    (folder / "val/images/val_1.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"val_1.png; .orthosparse data tiny_imagenet --root"):
        load("tiny_imagenet", tiny)


def test_wrong_annotations_and_empty_folders_are_named(tiny):
    folder = tiny / "tiny-imagenet-200"
    (folder / "val/val_annotations.txt").write_text("val_0.png\tn99\n")
    with pytest.raises(ValueError, match=r"expected a file and one of 3 classes in line 1; got 'val_0.png\\tn99'"):
        load("tiny_imagenet", tiny)
    for path in (folder / "train/n01/images").iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match="n01/images: expected images; got none"):
        load("tiny_imagenet", tiny)
    shutil.rmtree(folder / "train")
    (folder / "train").mkdir()
    with pytest.raises(FileNotFoundError, match="train: expected one folder a class; got none"):
        load("tiny_imagenet", tiny)


def test_grey_images_of_more_than_eight_bits_are_refused_and_not_turned_white(tiny):
    victim = sorted((tiny / "tiny-imagenet-200/train/n03/images").iterdir())[2]
    Image.fromarray(np.full((64, 64), 30000, np.uint16)).save(victim)
    with pytest.raises(ValueError, match=rf"{victim.name}: expected an image of 8 bits per channel; got the mode I"):
        load("tiny_imagenet", tiny)


def test_hidden_files_and_folders_are_neither_classes_nor_images(tiny):
    train = tiny / "tiny-imagenet-200/train"
    (train / ".ipynb_checkpoints").mkdir()
    shutil.copy(next((train / "n01/images").iterdir()), train / ".ipynb_checkpoints")
    (train / "n01/images/._n01_0.png").write_bytes(b"\0\5\x16\7")  # macOS leaves these on other file systems
    found = load("tiny_imagenet", tiny)
    assert found.classes == 3
    assert found.train.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5
