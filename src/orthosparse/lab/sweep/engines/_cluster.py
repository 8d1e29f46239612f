"""A connection to Ray: to a cluster that answers, or to one that is started here and ends with the block."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 60.0  # seconds for a cluster to answer
_STORE_BYTES = 80 * 2**20  # rows are small; Ray takes no less than 75 MiB
_PROBE = "import logging, ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)"


@contextmanager
def connected(address: str | None, jobs: int | None, *, patience: float = PATIENCE) -> Iterator[Any]:
    """Yield the module `ray`, connected; a connection that is there already is used and left.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: no cluster answers at `address` within `patience` seconds.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("engine: ray is not installed; pip install 'orthosparse[ray]'") from error
    if ray.is_initialized():
        yield ray
        return
    # Ray logs how it starts, and hands on what its workers print: neither belongs into a display of progress.
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    handler = signal.getsignal(signal.SIGTERM)
    if address is None:
        # Its usage statistics would go over the net, and want an answer first.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        cpus = jobs or os.cpu_count()
        ray.init(address="local", num_cpus=cpus, object_store_memory=_STORE_BYTES, include_dashboard=False, **quiet)
    else:
        _check_answers(address, patience)
        ray.init(address=address, **quiet)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray's own ends the program on the spot
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str, patience: float) -> None:
    """Raise unless a cluster answers: first whether anybody listens, then, in a process that can be ended, Ray itself.

    Ray's own attempt may take minutes, and where it gives up it ends its process.
    """
    if address != "auto":
        _check_listens(address, patience)
    command = [sys.executable, "-c", _PROBE, address]
    try:
        probe = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        raise _no_answer(address, f"nothing came within {patience:g} s") from None
    if probe.returncode != 0:
        lines = [line for line in probe.stderr.splitlines() if line.strip()]
        raise _no_answer(address, lines[-1] if lines else f"exit code {probe.returncode}")


def _check_listens(address: str, patience: float) -> None:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (host and colon and port.isdigit() and int(port) < 2**16):
        raise ValueError(f"address: expected HOST:PORT, ray://HOST:PORT or auto; got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=min(patience, 10.0)).close()
    except OSError as error:
        raise _no_answer(address, str(error)) from error


def _no_answer(address: str, why: str) -> ConnectionError:
    return ConnectionError(
        f"address: no Ray cluster answers at {address} ({why}); `ray start --head` starts one, and without --address "
        "one is started on this machine for the time of the run"
    )
