"""Expected density after every Givens rotation (Observation 1), and that of draws."""

from typing import Any

from orthosparse.lab.experiments import ExpectedDensity, Experiment
from orthosparse.lab.paper._book import Book
from orthosparse.lab.paper._curves import drawn
from orthosparse.lab.paper._names import SEEDS
from orthosparse.lab.paper._rendered import Column, Figure, Line, Measured, Rendered, Series
from orthosparse.lab.paper._tables import table_of

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Expected density of a product of Givens rotations"
_SIZES = (32, 100, 256)
_NOTES = ["The paper shows curves without numbers and does not say the size; the measured curve is the mean of seeds."]


def experiments(*, smoke: bool = False) -> list[Experiment]:
    """Return a matrix of each size."""
    return [ExpectedDensity(size) for size in ((12,) if smoke else _SIZES)]


def render(rows: list[dict[str, Any]], *, smoke: bool = False) -> Rendered:
    """Return both curves for each size, and their largest distance."""
    book = Book(rows)
    found = {str(each.given().get("size", 100)): each for each in experiments(smoke=smoke)}
    figures = [_figure(book, size, experiment) for size, experiment in found.items()]

    def measure(line: Line, column: Column) -> Measured:
        return book.measured(found[line.key], column.key)

    columns = [Column("rotations", "rotations", digits=0), Column("largest_distance", "largest distance of one draw")]
    lines = [Line(size, (f"n = {size}",)) for size in found]
    table = table_of("Expected against drawn", columns, lines, measure, heads=("size",), better=None, digits=4)
    return Rendered(tables=[table], figures=[figure for figure in figures if figure.series], notes=_NOTES)


def _figure(book: Book, size: str, experiment: Experiment) -> Figure:
    series = []
    for name, role in (("expected", "base"), ("measured", "eoi")):
        ys = book.curve(experiment, name)
        series.append(Series(name, list(range(len(ys))), ys, role, "" if name == "expected" else "6 3"))
    return Figure(f"n = {size}", "rotations", "density", drawn(series))
