"""CIFAR-10 and CIFAR-100 from their official binary or python files."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from orthosparse.lab.data._missing import corrupt, first_existing
from orthosparse.lab.data._plain_pickle import load_plain
from orthosparse.lab.data._splits import Augmentation, Dataset, Normalisation, Split, hold_out

_PIXELS = 3 * 32 * 32
_BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
# (bytes before the pixels, key of the python files): the last of the label bytes is the class.
_LABEL_10, _LABEL_100 = (1, "labels"), (2, "fine_labels")
Part = tuple[torch.Tensor, torch.Tensor]


def cifar10(root: Path, *, validation: bool = True) -> Dataset:
    """Return CIFAR-10 from ``root/cifar-10-batches-bin`` or ``root/cifar-10-batches-py``.

    The standard deviations are those of most training code and of the paper's; the pixels' own are .247 .243 .262.
    """
    normalisation = Normalisation((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    folder = first_existing("cifar10", root, [root / "cifar-10-batches-bin", root / "cifar-10-batches-py"])
    parts = _parts("cifar10", root, folder, [*_BATCHES, "test_batch"], _LABEL_10, 10)
    if len({len(labels) for _, labels in parts[:5]}) > 1:
        sizes = {batch: len(labels) for batch, (_, labels) in zip(_BATCHES, parts, strict=False)}
        raise corrupt("cifar10", root, folder, "equally many images in each data_batch", str(sizes))
    joined = (torch.cat([images for images, _ in parts[:5]]), torch.cat([labels for _, labels in parts[:5]]))
    augmentation = Augmentation(pad=4, pad_mode="reflect", flip=True)
    return _cifar("cifar10", joined, parts[5], 10, normalisation, augmentation, validation)


def cifar100(root: Path, *, validation: bool = True) -> Dataset:
    """Return CIFAR-100, its 100 fine classes, from ``root/cifar-100-binary`` or ``root/cifar-100-python``.

    Args:
        validation: hold out 10 % as the paper says; False trains on all 50,000 images, as its released code does.
    """
    normalisation = Normalisation((0.50708, 0.48655, 0.44092), (0.26733, 0.25644, 0.27615))
    folder = first_existing("cifar100", root, [root / "cifar-100-binary", root / "cifar-100-python"])
    train, test = _parts("cifar100", root, folder, ["train", "test"], _LABEL_100, 100)
    if len(train[1]) != 5 * len(test[1]):
        got = f"{len(train[1])} and {len(test[1])}"
        raise corrupt("cifar100", root, folder, "five times as many images in train as in test", got)
    augmentation = Augmentation(pad=4, pad_mode="zero", flip=True)
    return _cifar("cifar100", train, test, 100, normalisation, augmentation, validation)


def _cifar(
    name: str,
    train: Part,
    test: Part,
    classes: int,
    normalisation: Normalisation,
    augmentation: Augmentation,
    validation: bool,
) -> Dataset:
    kept, held = hold_out(Split(*train, normalisation), validation)
    return Dataset(
        name, kept, held, Split(*test, normalisation), classes, channels=3, size=32, augmentation=augmentation
    )


def _parts(name: str, root: Path, folder: Path, files: list[str], label: tuple[int, str], classes: int) -> list[Part]:
    binary = not folder.name.endswith(("py", "python"))
    read: Callable[[Path, tuple[int, str]], Part] = _binary if binary else _python
    parts = []
    for file in files:
        path = first_existing(name, root, [folder / (f"{file}.bin" if binary else file)])
        try:
            images, labels = read(path, label)
        except (ValueError, pickle.UnpicklingError) as error:
            raise corrupt(name, root, path, "an official CIFAR file", str(error)) from error
        if not len(labels) or int(labels.max()) >= classes or int(labels.min()) < 0:
            raise corrupt(
                name, root, path, f"images with labels below {classes}", f"{len(labels)} images, other labels"
            )
        parts.append((images, labels))
    return parts


def _binary(path: Path, label: tuple[int, str]) -> Part:
    """Read records of label bytes and the red, green and blue planes."""
    data, record = np.fromfile(path, np.uint8), label[0] + _PIXELS
    if len(data) % record:
        raise ValueError(f"{len(data)} bytes, which are no whole number of records of {record}")
    records = torch.from_numpy(data.reshape(-1, record))
    return records[:, label[0] :].reshape(-1, 3, 32, 32), records[:, label[0] - 1].long()


def _python(path: Path, label: tuple[int, str]) -> Part:
    """Read a pickled dictionary of an array ``data`` and a list of labels."""
    held = load_plain(path)
    if not isinstance(held, dict) or not isinstance(held.get("data"), np.ndarray) or label[1] not in held:
        raise ValueError(f"no dictionary with data and {label[1]}")
    return torch.from_numpy(held["data"].reshape(-1, 3, 32, 32).copy()), torch.tensor(held[label[1]], dtype=torch.int64)
