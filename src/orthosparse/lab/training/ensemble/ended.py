"""What came of the members of an ensemble, kept in a file once all of them have ended."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orthosparse.lab.files import write_atomically
from orthosparse.lab.training.ensemble.saving import error_from, told_of
from orthosparse.lab.training.ensemble.starts import Start
from orthosparse.lab.training.ensemble.state import Ensemble
from orthosparse.lab.training.finished import record_of
from orthosparse.lab.training.nonfinite import NonFiniteError
from orthosparse.lab.training.saving import check_same

RESULTS = "results.json"


@dataclass(frozen=True)
class Ended:
    """What came of a member.

    Attributes:
        row: as `train` returns it; None where the member has none.
        error: what `train` would have raised.
        epochs: metrics of the epochs that it finished.
        warnings: what the library said of its start.
        seconds, before: the training of all members, and how much of it lies in earlier parts of a resumed run.
        together: how many members had a start, and so a part in that time.
    """

    row: dict[str, Any] | None
    error: Exception | None = None
    epochs: list[dict[str, float]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    before: float = 0.0
    together: int = 1


def ended_of(
    ensemble: Ensemble, starts: list[Start], settings: dict[str, Any], tested: list[dict[str, float]]
) -> list[Ended]:
    """Return what came of every member, in the order of `settings`; `tested` is the last evaluation of all of them."""
    ended = []
    together = sum(start.problem is None for start in starts)
    for place, (start, own, figures) in enumerate(zip(starts, settings.values(), tested, strict=True)):
        shared: dict[str, Any] = {
            "epochs": ensemble.histories[place],
            "warnings": start.warnings,
            "seconds": ensemble.seconds,
            "together": together,
        }
        if start.problem is not None:
            ended.append(Ended(None, RuntimeError(start.problem), **shared))
        elif place in ensemble.errors:
            ended.append(Ended(None, ensemble.errors[place], **shared))
        else:
            found = {"test_accuracy": figures["accuracy"], "test_loss": figures["loss"]}
            row = {**own, **found, "density": start.density, "parameters": start.parameters}
            row |= {"epochs": ensemble.histories[place], "seconds": ensemble.seconds, "world": 1}
            ended.append(Ended(row, None, **shared))
    return ended


def keep(folder: Path, settings: dict[str, Any], ended: list[Ended]) -> None:
    """Write the results of all members."""
    results = [vars(each) | {"error": None if each.error is None else _told(each.error)} for each in ended]
    text = json.dumps({"settings": settings, "results": results})
    write_atomically(folder / RESULTS, text.encode())


def kept(folder: Path, settings: dict[str, Any]) -> list[Ended] | None:
    """Return the results of a run that has ended, or None.

    Raises:
        ValueError: they are those of other members; they are damaged, and there is no checkpoint to go on from.
    """
    found = record_of(folder / RESULTS, ("settings", "results"))
    if found is None:
        return None
    check_same(found["settings"], settings)
    return [Ended(**{**each, "error": _untold(each["error"]), "before": each["seconds"]}) for each in found["results"]]


def _told(error: Exception) -> dict[str, Any]:
    return told_of(error) if isinstance(error, NonFiniteError) else {"message": str(error)}


def _untold(told: dict[str, Any] | None) -> Exception | None:
    if told is None:
        return None
    return error_from(told) if "epoch" in told else RuntimeError(told["message"])
