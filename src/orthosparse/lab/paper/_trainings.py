"""Trainings of the paper's tables: one for each line and column, and tiny ones on embedded digits in their place."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from orthosparse.lab.experiments import Experiment, Training
from orthosparse.lab.paper._rendered import Column, Line

_TINY: dict[str, Any] = {"model_options": {"depth": 3, "width": 16}, "epochs": 1}

Choice = Callable[[Line, Column], Experiment | None]


def start_of(line: str, model: str, data: str, density: float, **changes: Any) -> Training:
    """Return the training of a line ``distribution/scheme``; ``dense/base`` has the framework's own weights.

    Example:
        >>> start_of("snip/ai", "resnet32", "cifar10", 0.1).key()
        '{"data":"cifar10","density":0.1,"distribution":"snip","kind":"training","model":"resnet32","scheme":"ai"}'
        >>> start_of("dense/base", "resnet32", "cifar10", 0.1).key()
        '{"data":"cifar10","dense_init":"default","kind":"training","model":"resnet32"}'
    """
    distribution, scheme = line.split("/")
    if distribution == "dense":
        changes = {name: value for name, value in changes.items() if name != "options"}
        changes |= {"dense_init": "default"} if scheme == "base" else {}
        return Training(model, data, **changes)
    return Training(model, data, density, distribution, scheme, **changes)


def tiny(line: str, density: float = 0.3, **changes: Any) -> Training:
    """Return a training of a second or less, from the same kind of start."""
    options = dict(changes.pop("options", {}))
    if line.endswith("/ai"):
        options["iterations"] = 20
    return start_of(line, "mlp", "digits", density, **{**_TINY, "options": options, **changes})


def unique(experiments: Iterable[Experiment | None]) -> list[Experiment]:
    """Return the experiments once each, in their order, without the places that have none."""
    return list(dict.fromkeys(experiment for experiment in experiments if experiment is not None))


def grid(lines: Sequence[Line], columns: Sequence[Column], choose: Choice) -> list[Experiment]:
    """Return the experiments of a table, column after column."""
    return unique(choose(line, column) for column in columns for line in lines)
