"""Files that survive a kill and a full disk."""

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that, whatever happens, either the old content or the whole new one is there.

    The file behind a link is written. A pipe or a terminal, such as ``/dev/stdout``, takes the content as it comes.

    Raises:
        OSError: the file cannot be written, for example because the disk is full; no temporary file is left.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(data)
        return
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        draft.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that renames in it are durable too, unless it cannot be read (on Windows, none can)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
