import gzip
import hashlib
import io
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from orthosparse.lab.data import download as room
from orthosparse.lab.data import load
from orthosparse.lab.data.fetching import fetch
from orthosparse.lab.data.sources import SOURCES, Download, Source

FIXTURES = Path(__file__).parents[2] / "fixtures"
MNIST = {path.stem: path.read_bytes() for path in sorted((FIXTURES / "MNIST/raw").glob("*.gz"))}
CIFAR = {path.name: path.read_bytes() for path in sorted((FIXTURES / "cifar-10-batches-bin").glob("*.bin"))}


def quiet(file):
    return None


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(room.time, "sleep", lambda seconds: None)


@pytest.fixture
def mnist(server):
    """The fixture's MNIST as a source on this machine."""
    server.files.update({f"{file}.gz": data for file, data in MNIST.items()})
    downloads = tuple(Download((server.url(f"{file}.gz"),)) for file in MNIST)
    return Source("MNIST/raw", downloads, {file: sha256(gzip.decompress(data)) for file, data in MNIST.items()})


def archive_of(files):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


@pytest.fixture
def cifar(server):
    folder = "cifar-10-batches-bin"
    extra = {"../outside": b"no", "/etc/outside": b"no", f"{folder}/readme.html": b"hello"}
    server.files["cifar.tar.gz"] = archive_of({**{f"{folder}/{file}": data for file, data in CIFAR.items()}, **extra})
    known = f"sha256:{sha256(server.files['cifar.tar.gz'])}"
    downloads = (Download((server.url("cifar.tar.gz"),), known),)
    return Source(folder, downloads, {file: sha256(data) for file, data in CIFAR.items()})


def test_gzipped_files_are_fetched_unpacked_and_readable(mnist, tmp_path):
    assert fetch(mnist, tmp_path, quiet)
    assert len(load("mnist", tmp_path).test) == 100
    assert not list((tmp_path / ".downloads").iterdir())


def test_a_complete_set_is_verified_and_left_alone(mnist, server, tmp_path):
    fetch(mnist, tmp_path, quiet)
    server.ranges.clear()
    assert not fetch(mnist, tmp_path, quiet)
    assert server.ranges == []


def test_files_that_lie_there_gzipped_are_accepted(mnist, server, tmp_path):
    shutil.copytree(FIXTURES / "MNIST", tmp_path / "MNIST")
    assert not fetch(mnist, tmp_path, quiet)
    assert server.ranges == []


def test_only_what_is_missing_or_damaged_is_fetched(mnist, server, tmp_path):
    fetch(mnist, tmp_path, quiet)
    server.ranges.clear()
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte").write_bytes(b"damaged")
    (tmp_path / "MNIST/raw/train-labels-idx1-ubyte").unlink()
    assert fetch(mnist, tmp_path, quiet)
    assert len(server.ranges) == 2
    assert not fetch(mnist, tmp_path, quiet)


def test_a_wrong_file_from_the_server_is_refused_and_not_kept(mnist, server, tmp_path):
    server.files["train-labels-idx1-ubyte.gz"] = gzip.compress(b"something else")
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte.gz: expected SHA-256 .* once unpacked; got"):
        fetch(mnist, tmp_path, quiet)
    assert not (tmp_path / "MNIST/raw/train-labels-idx1-ubyte").exists()
    server.files["train-labels-idx1-ubyte.gz"] = MNIST["train-labels-idx1-ubyte"]
    assert fetch(mnist, tmp_path, quiet)


def test_a_file_that_is_no_gzip_is_refused_and_not_kept(mnist, server, tmp_path):
    server.files["train-labels-idx1-ubyte.gz"] = b"<html>moved</html>"
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte.gz: cannot be unpacked"):
        fetch(mnist, tmp_path, quiet)
    assert not list((tmp_path / ".downloads").glob("train-labels*"))


def test_the_second_source_is_asked_when_the_first_fails(mnist, server, tmp_path):
    downloads = tuple(Download((server.url(f"gone/{item.name}"), *item.urls)) for item in mnist.downloads)
    assert fetch(Source(mnist.folder, downloads, mnist.files), tmp_path, quiet)
    assert len(server.ranges) == 8


def test_archives_are_unpacked_into_their_folder_and_nowhere_else(cifar, tmp_path):
    root = tmp_path / "root"
    assert fetch(cifar, root, quiet)
    assert len(load("cifar10", root).test) == 16
    assert sorted(path.name for path in (root / cifar.folder).iterdir()) == sorted([*CIFAR, "readme.html"])
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_a_broken_archive_download_is_resumed_by_the_next_call(cifar, server, tmp_path):
    server.breaks, server.cut = 5, 20_000
    with pytest.raises(OSError, match="broken off at 100000 of"):
        fetch(cifar, tmp_path, quiet)
    server.ranges.clear()
    assert fetch(cifar, tmp_path, quiet)
    assert server.ranges == ["bytes=100000-"]


def test_a_zip_appears_whole_and_never_over_a_folder_that_is_there(server, tmp_path):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as held:
        held.writestr("tiny/train/a/1.png", b"one")
        held.writestr("tiny/val/a/2.png", b"two")
    server.files["tiny.zip"] = made.getvalue()

    def count(root):
        return len(list(root.glob("tiny/train/*/*.png"))), len(list(root.glob("tiny/val/*/*.png")))

    source = Source("tiny", (Download((server.url("tiny.zip"),)),), count=count, counts=(1, 1))
    assert fetch(source, tmp_path, quiet)
    assert (tmp_path / "tiny/val/a/2.png").read_bytes() == b"two"
    (tmp_path / "tiny/val/a/2.png").unlink()
    with pytest.raises(FileExistsError, match=r"expected 1 training and 1 test images; got \(1, 0\)\. .*move it away"):
        fetch(source, tmp_path, quiet)
    assert (tmp_path / "tiny/train/a/1.png").exists()


def test_a_set_that_cannot_be_fetched_says_how_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"imagenet/train; .*account at https://image-net.org"):
        fetch(SOURCES["imagenet"], tmp_path, quiet)
