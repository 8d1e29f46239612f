"""The paper's data sets by name, and digits that need no files, as tensors on the device where they fit.

A member of `DATA` is a function ``(root, *, validation) -> Dataset`` that reads official files below `root`; `load`
calls it by name, and ``path/to/file.py:function`` is data of the user's own, see `from_file`. Splits and normalisation
are the paper's, with two departures: validation images are not augmented, and CIFAR-100 holds out 10 % like the others
unless ``validation=False``.
"""

from collections.abc import Callable
from pathlib import Path

import torch

from orthosparse.lab.data._splits import Augmentation, Dataset, Files, Normalisation, Split, hold_out
from orthosparse.lab.data.from_file import from_file
from orthosparse.lab.data.loader import Loader, Plan
from orthosparse.lab.names import check_data, is_function
from orthosparse.lazy import LazyTable

__all__ = [
    "DATA",
    "Augmentation",
    "Dataset",
    "Files",
    "Loader",
    "Normalisation",
    "Plan",
    "Split",
    "from_file",
    "load",
]

DATA: LazyTable[Callable[..., Dataset]] = LazyTable(
    {
        "cifar10": "orthosparse.lab.data.cifar:cifar10",
        "cifar100": "orthosparse.lab.data.cifar:cifar100",
        "cifar10_64": "orthosparse.lab.data.cifar:cifar10_64",
        "digits": "orthosparse.lab.data:digits",
        "fashion_mnist": "orthosparse.lab.data.idx:fashion_mnist",
        "imagenet": "orthosparse.lab.data.folders:imagenet",
        "mnist": "orthosparse.lab.data.idx:mnist",
        "tiny_imagenet": "orthosparse.lab.data.folders:tiny_imagenet",
    }
)


def load(
    name: str, root: Path | str | None = None, *, device: torch.device | str = "cpu", validation: bool = True
) -> Dataset:
    """Return the set `name` from the files below `root`, its tensors on `device`.

    Args:
        name: a member of `DATA`, or ``path/to/file.py:function``, see `from_file`.
        root: the folder that ``orthosparse data NAME --root`` filled; ``digits`` needs none.
        validation: hold out the last 10 % of the training samples, in the order of the files.

    Raises:
        ValueError: an unknown name, or a damaged file.
        FileNotFoundError: a file is missing; the message says how to get it.

    Example:
        >>> found = load("digits")
        >>> len(found.train), len(found.validation), len(found.test), found.in_shape
        (1294, 143, 360, (1, 8, 8))
    """
    if is_function(name):
        return from_file(name, Path(root or ".").expanduser(), validation=validation).to(device)
    check_data(name)
    if root is None and name != "digits":
        raise ValueError(f"root: expected the folder that holds {name}; got None")
    return DATA[name](Path(root or ".").expanduser(), validation=validation).to(device)


def digits(root: Path | None = None, *, validation: bool = True) -> Dataset:
    """Return the 1797 digits of 8 x 8 pixels that come with scikit-learn; the last 360 by index are the test set.

    Pixels are 0 to 16. Mean and deviation are those of the 1437 others.
    """
    del root  # embedded
    from sklearn.datasets import load_digits

    held = load_digits()
    normalisation = Normalisation((0.3054,), (0.3755,), unit=16.0)
    images = torch.from_numpy(held.images).to(torch.uint8).unsqueeze(1)
    whole = Split(images, torch.from_numpy(held.target).long(), normalisation)
    tested_from = len(whole) - 360
    train, kept = hold_out(whole.part(0, tested_from), validation)
    return Dataset("digits", train, kept, whole.part(tested_from, len(whole)), classes=10)
