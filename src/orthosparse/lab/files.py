"""Folders that one process writes to at a time."""

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".lock"
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_log = logging.getLogger(__name__)


@contextmanager
def locked(folder: Path, name: str = "out") -> Iterator[None]:
    """Keep a folder, made if it is not there, to this process inside the block.

    The operating system ends the lock with its process, however that ends.

    Args:
        name: the argument that named the folder, for the message.

    Raises:
        ValueError: another process is using it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    descriptor = _lock(path, f"{name}: {folder} is in use")
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(path: Path, in_use: str) -> int:
    """Return the descriptor of the locked file at `path`."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 300).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise ValueError(f"{in_use} by {holder}; wait for it to end, or choose another folder") from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                os.close(descriptor)
                raise OSError(error.errno, error.strerror, str(path)) from error
            _log.warning("%s cannot be locked (%s); let no other process use it", path.parent, error.strerror)
            return descriptor
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # its holder has just removed it: the next one to come makes another


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
