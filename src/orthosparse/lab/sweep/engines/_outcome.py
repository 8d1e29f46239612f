"""What came of a pair, in a form that travels between processes."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass

from orthosparse.lab.experiments import Progress
from orthosparse.lab.sweep.bundles import Bundle
from orthosparse.lab.sweep.pairs import Pair, Row

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
        return _failed(pair, error)


def attempt_together(bundle: Bundle, report: Report) -> list[Outcome]:
    """Perform a bundle, and return an outcome for each of its pairs that is wanted; all of them hear how far it is."""

    def progress(fraction: float, words: str) -> None:
        for pair in bundle.wanted:
            report(pair, fraction, words)

    try:
        found = bundle.perform(bundle.pairs, progress)
    except Exception as error:  # noqa: BLE001 - as above, for all of its pairs
        return [_failed(pair, error) for pair in bundle.wanted]
    wanted = set(bundle.wanted)
    return [
        _failed(pair, row) if isinstance(row, Exception) else Outcome(pair, row)
        for pair, row in zip(bundle.pairs, found, strict=True)
        if pair in wanted
    ]


def _failed(pair: Pair, error: Exception) -> Outcome:
    message = " ".join(str(error).split())
    trace = "".join(traceback.format_exception(error))
    return Outcome(pair, error=f"{type(error).__name__}: {message}", trace=trace)
