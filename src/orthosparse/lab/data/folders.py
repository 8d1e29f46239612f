"""Tiny ImageNet and ImageNet from folders of image files, one a class."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from orthosparse.lab.data._files import read_image, to_tensor
from orthosparse.lab.data._missing import Listing, class_names, corrupt, first_existing, list_folder
from orthosparse.lab.data._splits import Augmentation, Dataset, Files, Normalisation, Split
from orthosparse.lab.process import processors


def tiny_imagenet(root: Path, *, validation: bool = True) -> Dataset:
    """Return Tiny ImageNet from ``root/tiny-imagenet-200``, decoded into memory (1.3 GB).

    The official validation images are both validation and test set (the test labels are not public); with
    ``validation=False`` only the test set. They may lie as released, beside ``val_annotations.txt``, or in one folder a
    class.
    """
    folder = first_existing("tiny_imagenet", root, [root / "tiny-imagenet-200"])
    names = class_names("tiny_imagenet", root, folder / "train")
    normalisation = Normalisation((0.5,) * 3, (0.5,) * 3)
    train, test = (
        _in_memory("tiny_imagenet", root, list_folder("tiny_imagenet", root, folder / part, names), normalisation)
        for part in ("train", "val")
    )
    augmentation = Augmentation(pad=4, pad_mode="reflect", hue=0.05, saturation=0.05, flip=True, rotation=10)
    held = test if validation else None
    return Dataset("tiny_imagenet", train, held, test, len(names), augmentation)


def imagenet(root: Path, *, validation: bool = True, size: int = 224) -> Dataset:
    """Return ImageNet from ``root/imagenet/train`` and ``root/imagenet/val``, one folder a class in each.

    Its 50,000 validation images are both validation and test set. Images are decoded when a batch needs them.
    """
    folder = first_existing("imagenet", root, [root / "imagenet"])
    names = class_names("imagenet", root, folder / "train")
    normalisation = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    splits = []
    for part in ("train", "val"):
        paths, labels = list_folder("imagenet", root, folder / part, names)
        splits.append(Split(Files(tuple(paths), size), labels, normalisation))
    augmentation = Augmentation(resized_crop=True, flip=True)
    held = splits[1] if validation else None
    return Dataset("imagenet", splits[0], held, splits[1], len(names), augmentation)


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

    with ThreadPoolExecutor(processors()) as pool:
        for _ in pool.map(decode, range(len(paths)), chunksize=64):
            pass
    return Split(images, labels, normalisation)
