"""Progress of long work: a line on stderr, or calls of a user's function.

Every function of the library that may take minutes has an argument ``progress``: False is silent, True updates one
line on stderr, and a function is called as ``progress(what, done, total)`` after each part of the work, possibly from
another thread. `what` names the work ("synflow"), and `done` counts up to `total`; if the work ends early, the last
call reports that all of it is done.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from orthosparse.checks import check_progress

Reporter: TypeAlias = Callable[[str, int, int], None]
Progress: TypeAlias = bool | Reporter
Item = TypeVar("Item")


def reporter(progress: Progress) -> Reporter:
    """Return the function to call after each part of the work.

    Raises:
        TypeError: `progress` is neither a bool nor a function.

    Example:
        >>> reporter(print)("synflow", 12, 100)
        synflow 12 100
    """
    check_progress(progress)
    if isinstance(progress, bool):
        return _write_line if progress else silent
    return progress


def counted(items: Sequence[Item], what: str, report: Reporter) -> Iterator[Item]:
    """Yield the items, and report progress after each of them.

    Example:
        >>> for layer in counted(["fc1", "fc2"], "layers", print):
        ...     pass
        layers 1 2
        layers 2 2
    """
    for done, item in enumerate(items, 1):
        yield item
        report(what, done, len(items))


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""
    del what, done, total


def _write_line(what: str, done: int, total: int) -> None:
    line = f"{what} {done:,}/{total:,} ({done / total:.0%})"
    sys.stderr.write(f"\r{line:<40}" + "\n" * (done == total))  # wide enough to overwrite a longer line
    sys.stderr.flush()
