"""Tiny ImageNet and ImageNet from folders of image files, one a class."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from orthosparse.lab.data._files import read_image, to_tensor
from orthosparse.lab.data._missing import advice, corrupt, first_existing
from orthosparse.lab.data._splits import Augmentation, Dataset, Files, Normalisation, Split

_SUFFIXES = {".jpeg", ".jpg", ".png"}
Listing = tuple[list[Path], torch.Tensor]


def tiny_imagenet(root: Path, *, validation: bool = True) -> Dataset:
    """Return Tiny ImageNet from ``root/tiny-imagenet-200``, decoded into memory (1.3 GB).

    The official validation images are both validation and test set (the test labels are not public); with
    ``validation=False`` only the test set. They may lie as released, beside ``val_annotations.txt``, or in one folder a
    class.
    """
    folder = first_existing("tiny_imagenet", root, [root / "tiny-imagenet-200"])
    names = _class_names("tiny_imagenet", root, folder / "train")
    normalisation = Normalisation((0.5,) * 3, (0.5,) * 3)
    train = _in_memory("tiny_imagenet", root, _by_class("tiny_imagenet", root, folder / "train", names), normalisation)
    annotated = folder / "val" / "val_annotations.txt"
    if annotated.exists():
        listing = _by_annotation(root, annotated, names)
    else:
        listing = _by_class("tiny_imagenet", root, folder / "val", names)
    test = _in_memory("tiny_imagenet", root, listing, normalisation)
    augmentation = Augmentation(pad=4, pad_mode="reflect", hue=0.05, saturation=0.05, flip=True, rotation=10)
    held = test if validation else None
    size = test.images.shape[-1] if isinstance(test.images, torch.Tensor) else 0
    return Dataset("tiny_imagenet", train, held, test, len(names), channels=3, size=size, augmentation=augmentation)


def imagenet(root: Path, *, validation: bool = True, size: int = 224) -> Dataset:
    """Return ImageNet from ``root/imagenet/train`` and ``root/imagenet/val``, one folder a class in each.

    Its 50,000 validation images are both validation and test set. Images are decoded when a batch needs them.
    """
    folder = first_existing("imagenet", root, [root / "imagenet"])
    names = _class_names("imagenet", root, folder / "train")
    normalisation = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    splits = []
    for part in ("train", "val"):
        paths, labels = _by_class("imagenet", root, folder / part, names)
        splits.append(Split(Files(tuple(paths), size), labels, normalisation))
    augmentation = Augmentation(resized_crop=True, flip=True)
    held = splits[1] if validation else None
    return Dataset("imagenet", splits[0], held, splits[1], len(names), channels=3, size=size, augmentation=augmentation)


def _class_names(name: str, root: Path, folder: Path) -> list[str]:
    first_existing(name, root, [folder])
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    if not names:
        raise FileNotFoundError(f"{name}: {folder}: expected one folder a class; got none; {advice(name, root)}")
    return names


def _by_class(name: str, root: Path, folder: Path, names: list[str]) -> Listing:
    """List the images below each class's folder, in it or in its subfolder ``images``."""
    paths: list[Path] = []
    labels: list[int] = []
    for label, class_name in enumerate(names):
        place = first_existing(name, root, [folder / class_name / "images", folder / class_name])
        found = sorted(path for path in place.iterdir() if path.suffix.lower() in _SUFFIXES)
        if not found:
            raise FileNotFoundError(f"{name}: {place}: expected images; got none; {advice(name, root)}")
        paths += found
        labels += [label] * len(found)
    return paths, torch.tensor(labels)


def _by_annotation(root: Path, annotated: Path, names: list[str]) -> Listing:
    """List the images that ``val_annotations.txt`` names: a file and its class a line, tabs between."""
    labels = {class_name: label for label, class_name in enumerate(names)}
    rows = [line.split("\t") for line in annotated.read_text().splitlines() if line]
    for number, row in enumerate(rows, 1):
        if len(row) < 2 or row[1] not in labels:
            expected = f"a file and one of {len(names)} classes in line {number}"
            raise corrupt("tiny_imagenet", root, annotated, expected, repr("\t".join(row)))
    paths = [annotated.parent / "images" / row[0] for row in rows]
    return paths, torch.tensor([labels[row[1]] for row in rows])


def _in_memory(name: str, root: Path, listing: Listing, normalisation: Normalisation) -> Split:
    """Decode every image, in as many threads as there are cores: Pillow decodes outside the interpreter's lock."""
    paths, labels = listing
    first = to_tensor(read_image(first_existing(name, root, paths[:1])))
    images = torch.empty(len(paths), *first.shape, dtype=torch.uint8)

    def decode(index: int) -> None:
        pixels = to_tensor(read_image(first_existing(name, root, [paths[index]])))
        if pixels.shape != first.shape:
            raise corrupt(name, root, paths[index], f"an image of {tuple(first.shape)}", str(tuple(pixels.shape)))
        images[index] = pixels

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(decode, range(len(paths)), chunksize=64):
            pass
    return Split(images, labels, normalisation)
