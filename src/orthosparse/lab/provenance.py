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
    if _git("ls-files", "--error-unmatch", here.name, folder=here.parent) is None:
        return None  # installed, or inside somebody else's checkout
    head = _git("rev-parse", "HEAD", folder=here.parent)
    changed = _git("status", "--porcelain", "--untracked-files=no", folder=here.parent)
    return f"{head}+changes" if head and changed else head


def _processor() -> str:
    """Return the processor's name (outside Linux its architecture), and how many cores this process may use."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"cpu ({names[0] if names else platform.machine()}, {processors()} cores)"


def _git(*arguments: str, folder: Path) -> str | None:
    # The checkout may belong to another user, as in a container: its code is running already, so git may read it too.
    command = ["git", "-c", "safe.directory=*", "-C", str(folder), *arguments]
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

    Example:
        >>> with captured_warnings() as messages:
        ...     logging.getLogger("orthosparse.sparsify").warning("raised: %s", "fc1")
        >>> messages
        ['raised: fc1']
    """
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("orthosparse")
    before = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield messages
    finally:
        logger.handlers, logger.propagate = before
