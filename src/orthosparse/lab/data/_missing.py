"""Finding a set's files and the label of each image, and saying how to get them."""

import os
import shlex
from pathlib import Path

import torch


def advice(name: str, root: Path) -> str:
    """Return the command that brings the set."""
    return f"`orthosparse data {name} --root {shlex.quote(str(root))}` fetches it, or says how to get it"


def first_existing(name: str, root: Path, candidates: list[Path]) -> Path:
    """Return the first path of `candidates` that exists.

    Raises:
        FileNotFoundError: none does; the message names them and the command that fetches the set.
    """
    for path in candidates:
        if path.exists():
            return path
    looked = " or ".join(map(str, candidates))
    raise FileNotFoundError(f"{name}: expected {looked}; {advice(name, root)}")


def corrupt(name: str, root: Path, path: Path, expected: str, got: str) -> ValueError:
    """Return the error for a file that is there but wrong."""
    return ValueError(f"{name}: {path}: expected {expected}; got {got}. The file is damaged: {advice(name, root)}")


_SUFFIXES = {".jpeg", ".jpg", ".png"}
Listing = tuple[list[Path], torch.Tensor]


def list_folder(name: str, root: Path, folder: Path, names: list[str]) -> Listing:
    """List the images of `folder`: those of ``val_annotations.txt`` as released, else those in the classes' folders."""
    annotated = folder / "val_annotations.txt"
    # Moving the images into folders by class often leaves the annotations behind.
    if annotated.exists() and (folder / "images").is_dir():
        return by_annotation(name, root, annotated, names)
    return by_class(name, root, folder, names)


def class_names(name: str, root: Path, folder: Path) -> list[str]:
    """Return the sorted names of the classes' folders, without hidden ones; their order numbers the labels."""
    first_existing(name, root, [folder])
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")
    if not names:
        raise FileNotFoundError(f"{name}: {folder}: expected one folder a class; got none; {advice(name, root)}")
    return names


def by_class(name: str, root: Path, folder: Path, names: list[str]) -> Listing:
    """List the images below each class's folder, in it or in its subfolder ``images``, without hidden ones."""
    paths: list[Path] = []
    labels: list[int] = []
    for label, class_name in enumerate(names):
        source = first_existing(name, root, [folder / class_name / "images", folder / class_name])
        found = sorted(path for path in source.iterdir() if path.suffix.lower() in _SUFFIXES and path.name[0] != ".")
        if not found:
            raise FileNotFoundError(f"{name}: {source}: expected images; got none; {advice(name, root)}")
        paths += found
        labels += [label] * len(found)
    return paths, torch.tensor(labels)


def by_annotation(name: str, root: Path, annotated: Path, names: list[str]) -> Listing:
    """List the images that ``val_annotations.txt`` names: a file and its class a line, tabs between."""
    labels = {class_name: label for label, class_name in enumerate(names)}
    rows = [line.split("\t") for line in annotated.read_text(encoding="utf-8").splitlines() if line]
    for number, row in enumerate(rows, 1):
        if len(row) < 2 or row[1] not in labels:
            expected = f"a file and one of {len(names)} classes in line {number}"
            raise corrupt(name, root, annotated, expected, repr("\t".join(row)))
    paths = [annotated.parent / "images" / row[0] for row in rows]
    return paths, torch.tensor([labels[row[1]] for row in rows])
