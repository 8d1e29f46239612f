"""What is kept with a result: commit, versions and machine, and what the library warned of."""

import logging
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from orthosparse.lab.process import processors

_PACKAGES = ("orthosparse", "torch", "triton", "numpy", "scipy", "lightning-fabric", "lightning", "timm")
_OF_HOOKS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")


def provenance(device: torch.device) -> dict[str, Any]:
    """Return commit, versions, device and date, in plain values."""
    return {
        "commit": commit(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def commit() -> str | None:
    """Return the commit of the checkout this file lies in, ``+changes`` when files differ from it; None outside of one.

    The variable ORTHOSPARSE_COMMIT answers instead where it is set: for a copy without its history.
    """
    if given := os.environ.get("ORTHOSPARSE_COMMIT"):
        return given
    here = Path(__file__).resolve()
    root = _checkout(here)
    if root is None or _git("ls-files", "--error-unmatch", str(here), root=root) is None:
        return None  # installed, or inside somebody else's checkout
    head = _git("rev-parse", "HEAD", root=root)
    changed = _git("status", "--porcelain", "--untracked-files=no", root=root)
    return f"{head}+changes" if head and changed else head


def _checkout(file: Path) -> Path | None:
    """Return the folder of the checkout that a file lies in; None outside of one, and where git should not read it.

    git runs programs that the settings of a repository name. Anyone may make a ``.git`` in a shared folder above the
    file, so it must belong to this process's user or to the owner of the file, whose code is running already.
    """
    root = next((folder for folder in file.parents if (folder / ".git").exists()), None)
    # lstat: a link of theirs may lead to a folder of anyone's.
    if root is None or (root / ".git").lstat().st_uid not in (file.stat().st_uid, os.geteuid()):
        return None
    return root


def _processor() -> str:
    """Return the processor's name (outside Linux its architecture), and how many cores this process may use."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"cpu ({names[0] if names else platform.machine()}, {processors()} cores)"


def _git(*arguments: str, root: Path) -> str | None:
    # The checkout may belong to another user, as in a container: see _checkout for whose it may be.
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *arguments]
    # Hooks have these, and then git answers for the repository of the hook.
    outside = {name: value for name, value in os.environ.items() if name not in _OF_HOOKS}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=outside)
    except FileNotFoundError:  # no git here
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(name: str) -> str | None:
    if name == "torch":
        return str(torch.__version__)  # with what it was built for, which its package may leave out
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@contextmanager
def captured_warnings() -> Iterator[list[str]]:
    """Collect what the library warns of inside the block, in order.

    Warnings of the lab, such as that of a damaged checkpoint, are about this machine: they are shown as outside.

    Example:
        >>> with captured_warnings() as messages:
        ...     logging.getLogger("orthosparse.sparsify").warning("raised: %s", "fc1")
        >>> messages
        ['raised: fc1']
    """
    messages: list[str] = []
    logger = logging.getLogger("orthosparse")
    before = logger.handlers, logger.propagate
    outside = logging.Logger(logger.name)  # does what the logger would do outside of the block
    outside.parent, outside.handlers, outside.propagate = logger.parent, *before

    def keep(record: logging.LogRecord) -> None:
        if record.name.startswith("orthosparse.lab."):
            outside.callHandlers(record)
        else:
            messages.append(record.getMessage())

    handler = logging.Handler(logging.WARNING)
    handler.emit = keep  # type: ignore[method-assign]
    logger.handlers, logger.propagate = [handler], False
    try:
        yield messages
    finally:
        logger.handlers, logger.propagate = before
