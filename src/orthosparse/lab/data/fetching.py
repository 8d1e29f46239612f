"""A whole data set onto the disk: fetch what is missing, unpack it, verify all of it."""

import gzip
import hashlib
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from orthosparse.files import write_atomically
from orthosparse.lab.data.download import Report, download
from orthosparse.lab.data.sources import Download, Source, problems

# Called with the name of a file that is about to be fetched; returns what is called with its progress.
Announce = Callable[[str], Report | None]


def fetch(source: Source, root: Path, announce: Announce) -> bool:
    """Make the set complete below `root`; return whether anything had to be fetched.

    Files that are there and right are kept; an interrupted download goes on where it stopped.

    Raises:
        OSError: it cannot be fetched, or a checksum is wrong from every source.
        ValueError: what was unpacked is not what it should be.
    """
    found = problems(source, root)
    if not found:
        return False
    if not source.downloads:
        raise FileNotFoundError(f"{found[0]}. {source.advice}")
    target = root / source.folder
    if target.exists() and source.downloads[0].name.endswith(".zip"):
        raise FileExistsError(f"{found[0]}. {target} is there but not complete: move it away to fetch it anew")
    for item in source.downloads:
        if not _already(source, item, root):
            _unpack(_downloaded(item, root / ".downloads", announce), source, root)
    left = problems(source, root)
    if left:
        raise ValueError("; ".join(left))
    return True


def _already(source: Source, item: Download, root: Path) -> bool:
    """Tell whether the file that `item` unpacks to is there and right; archives of many files are always fetched."""
    file = item.name.removesuffix(".gz")
    if file not in source.files:
        return False
    return not problems(Source(source.folder, files={file: source.files[file]}), root)


def _downloaded(item: Download, folder: Path, announce: Announce) -> Path:
    failures = []
    for url in item.urls:
        try:
            return download(url, folder / item.name, known_hash=item.known_hash, report=announce(item.name))
        except (OSError, ValueError) as error:
            failures.append(str(error))
    raise OSError("; ".join(failures))


def _unpack(archive: Path, source: Source, root: Path) -> None:
    target = root / source.folder
    try:
        if archive.name.endswith(".tar.gz"):
            _untar(archive, target)
        elif archive.suffix == ".zip":
            _unzip(archive, target)
        else:
            _gunzip(archive, target / archive.stem, source.files.get(archive.stem))
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile) as error:
        archive.unlink()
        raise ValueError(f"{archive.name}: cannot be unpacked ({error}); run again to fetch it anew") from error
    archive.unlink()


def _gunzip(archive: Path, path: Path, sha256: str | None) -> None:
    data = gzip.decompress(archive.read_bytes())
    if sha256 is not None and (got := hashlib.sha256(data).hexdigest()) != sha256:
        archive.unlink()
        raise ValueError(f"{archive.name}: expected SHA-256 {sha256} once unpacked; got {got}")
    _write(path, data)


def _untar(archive: Path, target: Path) -> None:
    """Unpack the plain files of the folder that is called like `target`; no path of the archive is followed."""
    with tarfile.open(archive) as tar:
        for member in tar:
            inside = PurePosixPath(member.name)
            held = tar.extractfile(member) if member.isfile() and inside.parent.name == target.name else None
            if held is not None:
                _write(target / inside.name, held.read())


def _unzip(archive: Path, target: Path) -> None:
    """Unpack beside `target` and rename the folder of that name to it, so that it is there whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpacking-") as scratch:
        with zipfile.ZipFile(archive) as held:
            held.extractall(scratch)
        unpacked = Path(scratch) / target.name
        if not unpacked.is_dir():
            raise zipfile.BadZipFile(f"it holds no folder {target.name}")
        unpacked.replace(target)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)
