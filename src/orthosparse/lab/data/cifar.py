"""CIFAR-10, as it is and scaled up, and CIFAR-100, from their official binary files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import interpolate

from orthosparse.lab.data._missing import corrupt, first_existing
from orthosparse.lab.data._splits import Augmentation, Dataset, Normalisation, Split, hold_out

_PIXELS = 3 * 32 * 32
_BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
Part = tuple[torch.Tensor, torch.Tensor]


def cifar10(root: Path, *, validation: bool = True) -> Dataset:
    """Return CIFAR-10 from ``root/cifar-10-batches-bin``.

    The standard deviations are those of most training code and of the paper's; the pixels' own are .247 .243 .262.
    """
    normalisation = Normalisation((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    folder = first_existing("cifar10", root, [root / "cifar-10-batches-bin"])
    parts = [_read("cifar10", root, folder / f"{file}.bin", 1, 10) for file in [*_BATCHES, "test_batch"]]
    if len({len(labels) for _, labels in parts[:5]}) > 1:
        sizes = {batch: len(labels) for batch, (_, labels) in zip(_BATCHES, parts, strict=False)}
        raise corrupt("cifar10", root, folder, "equally many images in each data_batch", str(sizes))
    joined = (torch.cat([images for images, _ in parts[:5]]), torch.cat([labels for _, labels in parts[:5]]))
    augmentation = Augmentation(pad=4, pad_mode="reflect", flip=True)
    kept, held = hold_out(Split(*joined, normalisation), validation)
    return Dataset("cifar10", kept, held, Split(*parts[5], normalisation), 10, augmentation)


def cifar10_64(root: Path, *, validation: bool = True) -> Dataset:
    """Return CIFAR-10 scaled up to 64 x 64 pixels (bilinear): a stand-in for Tiny ImageNet, of the same size."""
    small = cifar10(root, validation=validation)
    held = None if small.validation is None else _doubled(small.validation)
    train, test = _doubled(small.train), _doubled(small.test)
    augmentation = Augmentation(pad=8, pad_mode="reflect", flip=True)
    return replace(small, name="cifar10_64", train=train, validation=held, test=test, augmentation=augmentation)


def cifar100(root: Path, *, validation: bool = True) -> Dataset:
    """Return CIFAR-100, its 100 fine classes, from ``root/cifar-100-binary``.

    Args:
        validation: hold out 10 % as the paper says; False trains on all 50,000 images, as its released code does.
    """
    normalisation = Normalisation((0.50708, 0.48655, 0.44092), (0.26733, 0.25644, 0.27615))
    folder = first_existing("cifar100", root, [root / "cifar-100-binary"])
    train, test = (_read("cifar100", root, folder / f"{file}.bin", 2, 100) for file in ("train", "test"))
    if len(train[1]) != 5 * len(test[1]):
        got = f"{len(train[1])} and {len(test[1])}"
        raise corrupt("cifar100", root, folder, "five times as many images in train as in test", got)
    augmentation = Augmentation(pad=4, pad_mode="zero", flip=True)
    kept, held = hold_out(Split(*train, normalisation), validation)
    return Dataset("cifar100", kept, held, Split(*test, normalisation), 100, augmentation)


def _doubled(split: Split) -> Split:
    """Scale the images by 2; sums of quarters of pixels are exact in float32, so that every machine has the same."""
    assert isinstance(split.images, torch.Tensor)
    parts = [interpolate(part.float(), scale_factor=2, mode="bilinear") for part in split.images.split(1000)]
    return replace(split, images=torch.cat([part.round().to(torch.uint8) for part in parts]))


def _read(name: str, root: Path, path: Path, label_bytes: int, classes: int) -> Part:
    """Read records of label bytes, the last of which is the class, and the red, green and blue planes."""
    data, record = np.fromfile(first_existing(name, root, [path]), np.uint8), label_bytes + _PIXELS
    if len(data) % record:
        raise corrupt(name, root, path, f"a whole number of records of {record} bytes", f"{len(data)} bytes")
    records = torch.from_numpy(data.reshape(-1, record))
    images, labels = records[:, label_bytes:].reshape(-1, 3, 32, 32), records[:, label_bytes - 1].long()
    if not len(labels) or int(labels.max()) >= classes:
        got = f"{len(labels)} images, other labels"
        raise corrupt(name, root, path, f"images with labels below {classes}", got)
    return images, labels
