"""MNIST and Fashion-MNIST from their IDX files, raw or gzipped."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch

from orthosparse.lab.data._missing import corrupt, first_existing
from orthosparse.lab.data._splits import Dataset, Normalisation, Split, hold_out

_UNSIGNED_BYTE = 8


def mnist(root: Path, *, validation: bool = True) -> Dataset:
    """Return MNIST from ``root/MNIST/raw``."""
    return _idx_set("mnist", root, "MNIST", Normalisation((0.1307,), (0.3081,)), validation)


def fashion_mnist(root: Path, *, validation: bool = True) -> Dataset:
    """Return Fashion-MNIST from ``root/FashionMNIST/raw``."""
    return _idx_set("fashion_mnist", root, "FashionMNIST", Normalisation((0.2860,), (0.3530,)), validation)


def _idx_set(name: str, root: Path, folder: str, normalisation: Normalisation, validation: bool) -> Dataset:
    splits = []
    for stem in ("train", "t10k"):
        images = _read(name, root, folder, f"{stem}-images-idx3-ubyte", 3)
        labels = _read(name, root, folder, f"{stem}-labels-idx1-ubyte", 1).long()
        if len(images) != len(labels) or labels.max() > 9 or images.shape[1:] != (28, 28):
            raise ValueError(
                f"{name}: {root / folder}: expected 28 x 28 {stem} images with a label from 0 to 9 each; "
                f"got {tuple(images.shape)} images and {len(labels)} labels up to {int(labels.max())}"
            )
        splits.append(Split(images.unsqueeze(1), labels, normalisation))
    train, held = hold_out(splits[0], validation)
    return Dataset(name, train, held, splits[1], classes=10)


def _read(name: str, root: Path, folder: str, file: str, dims: int) -> torch.Tensor:
    path = first_existing(name, root, [root / folder / "raw" / f"{file}{end}" for end in ("", ".gz")])
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise corrupt(name, root, path, "a gzip file", str(error)) from error
    # Two zero bytes, the type, the number of dimensions, then each size as a big-endian 32-bit integer.
    head = 4 + 4 * dims
    if data[:4] != bytes([0, 0, _UNSIGNED_BYTE, dims]) or len(data) < head:
        raise corrupt(name, root, path, f"an IDX header of unsigned bytes in {dims} dimensions", data[:4].hex())
    sizes = np.frombuffer(data, ">u4", dims, 4).tolist()
    if len(data) != head + math.prod(sizes) or not sizes[0]:
        raise corrupt(name, root, path, f"{head + math.prod(sizes)} bytes for sizes {sizes}", f"{len(data)}")
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=head).reshape(sizes).copy())
