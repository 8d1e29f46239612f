"""What several claims say of cells: percents, and differences paired by seed."""

from orthosparse.lab.paper._layout import number_text
from orthosparse.lab.paper._tables import Cell
from orthosparse.lab.paper.statistics import Difference, paired


def difference(one: Cell, other: Cell) -> Difference | None:
    """Return how far one cell is above another, paired by seed."""
    values = [
        {row["seed"]: 100 * row["metrics"]["test_accuracy"] for row in cell.rows if "test_accuracy" in row["metrics"]}
        for cell in (one, other)
    ]
    return paired(values[0], values[1])


def percent(name: str, cell: Cell) -> str:
    """Return a name with the mean of a cell, and the epochs where they are not the paper's."""
    length = "" if cell.whole else f" ({cell.setting})"
    return f"{name} {number_text(cell.ours and (cell.ours[0], None), 2)} %{length}"
