"""Where each data set comes from, and whether what lies on the disk is it."""

import gzip
import hashlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orthosparse.lab.data._missing import advice, class_names, list_folder


@dataclass(frozen=True)
class Download:
    """A file to fetch: where from, in order of preference, and its SHA-256, or None if only its content has one."""

    urls: tuple[str, ...]
    known_hash: str | None = None

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.urls[0].rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Source:
    """A data set on the disk and on the net.

    Attributes:
        folder: where it lies below the root.
        downloads: what to fetch; empty when it cannot be.
        files: SHA-256 of every file, unpacked; a file may lie there gzipped.
        count: for files without known checksums: ``(root) -> (training, test)`` images found.
        counts: what `count` has to find.
        advice: what to do when it cannot be fetched.
    """

    folder: str
    downloads: tuple[Download, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    count: Callable[[Path], tuple[int, int]] | None = None
    counts: tuple[int, int] = (0, 0)
    advice: str = ""


def absent(name: str, root: Path) -> str | None:
    """Return how to get a set that does not lie below `root`; None where it does, or has no files."""
    source = SOURCES.get(name)
    if source is None or (root / source.folder).exists():
        return None
    return f"{name}: expected {root / source.folder}; {advice(name, root)}"


def problems(source: Source, root: Path) -> list[str]:
    """Return what is missing or wrong below `root`, a line each; an empty list is a complete set."""
    if source.files:
        found = (_problem(root / source.folder / file, wanted) for file, wanted in source.files.items())
        return [line for line in found if line]
    assert source.count is not None, "a source without checksums has to count"
    try:
        counts = source.count(root)
    except (FileNotFoundError, ValueError) as error:
        return [str(error)]
    if counts == source.counts:
        return []
    return [f"{root}: expected {source.counts[0]} training and {source.counts[1]} test images; got {counts}"]


def content(path: Path) -> bytes:
    """Return what a file holds, unzipped if it is a ``.gz``."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _problem(path: Path, wanted: str) -> str:
    zipped = path.with_name(f"{path.name}.gz")
    path = path if path.exists() or not zipped.exists() else zipped
    if not path.exists():
        return f"{path}: missing"
    try:
        got = hashlib.sha256(content(path)).hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        return f"{path}: damaged ({error})"
    return "" if got == wanted else f"{path}: expected SHA-256 {wanted}; got {got}"


def _count_folders(name: str, folder: str) -> Callable[[Path], tuple[int, int]]:
    def count(root: Path) -> tuple[int, int]:
        names = class_names(name, root, root / folder / "train")
        train, test = (len(list_folder(name, root, root / folder / part, names)[0]) for part in ("train", "val"))
        return train, test

    return count


def _gzipped(hosts: tuple[str, ...], checksums: Mapping[str, str | None]) -> tuple[Download, ...]:
    return tuple(
        Download(tuple(f"{host}/{file}.gz" for host in hosts), known_hash) for file, known_hash in checksums.items()
    )


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_MNIST = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_FASHION = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
_CIFAR10 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
_CIFAR100 = {
    "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
    "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
}

SOURCES: dict[str, Source] = {
    "cifar10": Source(
        "cifar-10-batches-bin",
        (
            Download(
                (f"{_TORONTO}/cifar-10-binary.tar.gz",),
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
        _CIFAR10,
    ),
    "cifar100": Source(
        "cifar-100-binary",
        (
            Download(
                (f"{_TORONTO}/cifar-100-binary.tar.gz",),
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ),
        ),
        _CIFAR100,
    ),
    "fashion_mnist": Source(
        "FashionMNIST/raw",
        _gzipped(("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",), dict.fromkeys(_FASHION)),
        _FASHION,
    ),
    "imagenet": Source(
        "imagenet",
        count=_count_folders("imagenet", "imagenet"),
        counts=(1_281_167, 50_000),
        advice="It needs an account at https://image-net.org: put ILSVRC2012 into imagenet/train and imagenet/val "
        "below the root, one folder a class",
    ),
    "mnist": Source(
        "MNIST/raw",
        _gzipped(
            ("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist"),
            {
                "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            },
        ),
        _MNIST,
    ),
    "tiny_imagenet": Source(
        "tiny-imagenet-200",
        (
            Download(
                ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
                "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            ),
        ),
        count=_count_folders("tiny_imagenet", "tiny-imagenet-200"),
        counts=(100_000, 10_000),
    ),
}
SOURCES["cifar10_64"] = SOURCES["cifar10"]  # the same files
