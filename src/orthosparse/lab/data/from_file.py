"""Data of the user's own: what a function in a file returns."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orthosparse.lab.data._splits import Dataset, Normalisation, Split, hold_out
from orthosparse.lab.names import load_function, taken

_PARTS = ("train", "test", "validation")


def from_file(name: str, root: Path, *, validation: bool) -> Dataset:
    """Return the set that the function ``path/to/file.py:function`` loads.

    The function returns a mapping: ``train`` and ``test``, and if it likes ``validation``, each a pair (images, labels)
    of tensors or arrays. Images are ``[samples, channels, height, width]``, as many sides in every part: uint8, which
    is normalised with the mean and deviation of each channel in ``train``, or floating-point, which is taken as it is.
    Labels are whole numbers from 0, one for each image. The function may take `root`, the folder of the data.

    Args:
        validation: hold out the last 10 % of ``train`` where the function returns no ``validation``.

    Raises:
        FileNotFoundError: no such file.
        TypeError: the function returns something else than a mapping of pairs.
        ValueError: no such function, or images and labels that do not fit together.
    """
    load = load_function(name, "data")
    found = load(**taken(load, root=root))
    if not isinstance(found, Mapping) or not {"train", "test"} <= set(found) <= set(_PARTS):
        came = sorted(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
        raise TypeError(f"data: expected {name} to return a mapping with train and test; got {came}")
    pairs = {part: _pair(found[part], part) for part in _PARTS if found.get(part) is not None}
    _check_alike(pairs)
    normalisation = _normalisation(pairs["train"][0])
    splits = {part: Split(*pair, normalisation) for part, pair in pairs.items()}
    train, held = (
        (splits["train"], splits["validation"]) if "validation" in splits else hold_out(splits["train"], validation)
    )
    classes = 1 + max(int(labels.max()) for _, labels in pairs.values())
    return Dataset(name, train, held, splits["test"], classes=classes)


def _pair(given: Any, part: str) -> tuple[Tensor, Tensor]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(f"data: expected {part} to be a pair (images, labels); got {type(given).__name__}")
    images, labels = (_tensor(each, f"{part} {name}") for each, name in zip(given, ("images", "labels"), strict=True))
    if images.dim() != 4 or not images.numel():
        raise ValueError(
            f"data: expected {part} images of shape [samples, channels, height, width]; got {tuple(images.shape)}"
        )
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ValueError(f"data: expected {part} images of uint8 or floating-point numbers; got {images.dtype}")
    expected = f"data: expected {len(images)} whole numbers from 0 as {part} labels"
    if labels.shape != images.shape[:1] or labels.is_floating_point():
        raise ValueError(f"{expected}; got {labels.dtype} of shape {tuple(labels.shape)}")
    labels = labels.long()  # torch.min does not take uint16, uint32 or uint64
    if int(labels.min()) < 0:
        raise ValueError(f"{expected}; got {int(labels.min())}")
    return images if images.dtype == torch.uint8 else images.float(), labels


def _tensor(given: Any, name: str) -> Tensor:
    """Return an array as a tensor, copied if it is reversed or byte-swapped, which torch does not take."""
    if isinstance(given, Tensor):
        return given
    array = np.asarray(given)
    try:
        with warnings.catch_warnings():
            # Read-only memory maps: a copy would read all of them into memory, and loaders only copy from them.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
            return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), "C"))
    except TypeError as error:
        raise TypeError(f"data: expected {name} to be an array or a tensor of numbers; got {array.dtype}") from error


def _check_alike(pairs: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    kinds = {part: (images.dtype, tuple(images.shape[1:])) for part, (images, _) in pairs.items()}
    for part, kind in kinds.items():
        if kind != kinds["train"]:
            raise ValueError(f"data: expected images of {part} like those of train, {kinds['train']}; got {kind}")


def _normalisation(images: Tensor) -> Normalisation:
    if images.dtype != torch.uint8:
        return Normalisation((0.0,) * images.shape[1], (1.0,) * images.shape[1], unit=1.0)
    scaled = [images[:, channel].double() / 255 for channel in range(images.shape[1])]
    return Normalisation(
        tuple(float(each.mean()) for each in scaled), tuple(float(each.std()) or 1.0 for each in scaled)
    )
