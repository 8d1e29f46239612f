"""The record of a run that has ended, read back: whole, or told from one that was damaged."""

import json
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

from orthosparse.lab.training.checkpoint import has_checkpoint

_log = logging.getLogger(__name__)


def record_of(path: Path, names: Collection[str]) -> dict[str, Any] | None:
    """Return the record at `path`, or None where the run has not ended.

    A damaged record beside checkpoints is reported in the log and counts as none: the run goes on from them, and writes
    it again.

    Args:
        names: what a whole record has at least.

    Raises:
        ValueError: it is damaged, and there is no checkpoint to go on from.
    """
    if not path.exists():
        return None
    try:
        return _read(path, names)
    except ValueError as error:
        if not has_checkpoint(path.parent):
            raise ValueError(
                f"{path}: expected the record of a run with {', '.join(names)}; got a damaged one ({error}), and no "
                "checkpoint beside it; remove it to start again"
            ) from error
        _log.warning("%s is damaged (%s); going on from the checkpoints beside it", path, error)
        return None


def _read(path: Path, names: Collection[str]) -> dict[str, Any]:
    record = json.loads(path.read_bytes())
    if not isinstance(record, dict):
        raise ValueError(f"a {type(record).__name__} instead of named values")
    if lacking := [name for name in names if name not in record]:
        raise ValueError(f"no {', '.join(lacking)} in it")
    return record
