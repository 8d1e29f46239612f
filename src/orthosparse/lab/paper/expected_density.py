"""Expected density after every Givens rotation (Observation 1), and that of draws."""

from typing import Any

from orthosparse.lab.experiments import Experiment
from orthosparse.lab.experiments.expected_density import ExpectedDensity
from orthosparse.lab.paper._rows import RowIndex
from orthosparse.lab.paper._study import SEEDS, drawn
from orthosparse.lab.paper._tables import Column, Line, Rendered, table_of
from orthosparse.lab.rendering.contents import Figure, Series

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Expected density of a product of Givens rotations"
_SIZES = (32, 100, 256)
_NOTES = ["The paper shows curves without numbers and does not say the size; the measured curve is the mean of seeds."]
_COLUMNS = [Column("rotations", "rotations", digits=0), Column("largest_distance", "largest distance of one draw")]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return a matrix of each size."""
    return [ExpectedDensity(size) for size in ((12,) if smoke else _SIZES)]


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return both curves for each size, and their largest distance."""
    index = RowIndex(rows)
    found = {str(each.described()["size"]): each for each in experiments(smoke=smoke)}
    lines, measured = [Line(size, (f"n = {size}",)) for size in found], index.metrics(found, _COLUMNS)
    table = table_of("Expected against drawn", _COLUMNS, lines, measured, heads=("size",), better=None, digits=4)
    return Rendered([table], drawn([_figure(index, *each) for each in found.items()]), notes=_NOTES)


def _figure(index: RowIndex, size: str, experiment: Experiment) -> Figure:
    series = []
    for name, role, style in (("expected", "base", "solid"), ("measured", "eoi", "dashed")):
        ys = index.curve(experiment, name)
        series.append(Series(name, list(range(len(ys))), ys, role, style))
    return Figure(f"n = {size}", "rotations", "density", series)
