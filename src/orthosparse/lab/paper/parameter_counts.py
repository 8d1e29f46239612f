"""How many weights the sparse networks keep."""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.experiments.parameter_count import ParameterCount
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import CONTEMPORARY, DATA, MODELS
from orthosparse.lab.paper._tables import Column, Line, Rendered, table_of

TITLE = "Parameters of the sparse networks"
SEEDS = (1,)
_COLUMNS = [Column("parameters", "all"), Column("prunable", "prunable"), Column("kept", "kept")]
_NOTES = ["The paper rounds and counts kept weights only; biases and normalisation, always dense, are not among them."]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return a count for each network."""
    return list(_all(smoke).values())


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return the counts."""
    index, found = RowIndex(rows), _all(smoke)
    measured = index.metrics(found, _COLUMNS)
    lines = [_line(key, experiment.described()["density"]) for key, experiment in found.items()]
    heads = ("network", "density")
    table = table_of(TITLE, _COLUMNS, lines, measured, item="parameter_counts", heads=heads, better=None, digits=0)
    return Rendered([table], notes=_NOTES)


def _all(smoke: bool) -> dict[str, Experiment]:
    densities = {column.key: 0.1 for column in CONTEMPORARY[:5]} | {"mlp1000/mnist": 0.125, "cnn1000/cifar10": 0.125}
    asked = {"resnet32/cifar10": 0.2} if smoke else densities
    named = {key: key.split("/") for key in asked}
    return {key: ParameterCount(model, data, asked[key]) for key, (model, data) in named.items()}


def _line(key: str, density: float) -> Line:
    model, data = key.split("/")
    return Line(key, (f"{MODELS[model]} ({DATA[data]})", f"{density:.1%}"), model=MODELS[model])
