"""What came of a pair, in a form that travels between processes."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass

from orthosparse.lab.experiments import Progress
from orthosparse.lab.pairs import Pair, Row

Perform = Callable[[Pair, Progress | None], Row]
Report = Callable[[Pair, float, str], None]


@dataclass(frozen=True)
class Outcome:
    """A row, or why there is none.

    Attributes:
        error: one line; None where there is a row.
        trace: where the error came from, for those who look for it.
    """

    pair: Pair
    row: Row | None = None
    error: str | None = None
    trace: str = ""


def attempt(perform: Perform, pair: Pair, progress: Progress | None) -> Outcome:
    """Perform a pair; an error becomes part of the outcome, so that it ends its pair and not the sweep."""
    try:
        return Outcome(pair, perform(pair, progress))
    except Exception as error:  # noqa: BLE001 - whatever it is, the other pairs go on and the user is told
        message = " ".join(str(error).split())
        return Outcome(pair, error=f"{type(error).__name__}: {message}", trace=traceback.format_exc())
