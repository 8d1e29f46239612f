"""What several claims say of cells: whether they can be compared, their ends, and differences paired by seed."""

from orthosparse.lab.paper._layout import DIVERGED, NOT_MEASURED, number_text
from orthosparse.lab.paper._tables import Cell
from orthosparse.lab.paper.statistics import Difference, paired


def are_comparable(*cells: Cell) -> bool:
    """Return whether cells were trained for the epochs that were asked for, and all in one precision."""
    return all(cell.whole for cell in cells) and len({cell.setting for cell in cells}) == 1


def end_of(cell: Cell) -> float | None:
    """Return the mean of a cell; zero if a seed diverged, None if it is not measured."""
    return 0.0 if cell.lost else cell.ours and cell.ours[0]


def difference(one: Cell, other: Cell) -> Difference | None:
    """Return how far one cell is above another, paired by seed; None if they trained differently or a seed diverged."""
    if one.setting != other.setting or one.lost or other.lost:
        return None
    values = [{row["seed"]: 100 * row["metrics"]["test_accuracy"] for row in cell.rows} for cell in (one, other)]
    return paired(values[0], values[1])


def percent(name: str, cell: Cell) -> str:
    """Return a name with the mean of a cell, the epochs where they are not the paper's, and how many runs diverged."""
    notes = [cell.setting] * (not cell.whole) + [f"{cell.lost} of {len(cell.rows)} diverged"] * bool(cell.lost)
    if cell.ours is None:
        return f"{name} {DIVERGED if cell.rows else NOT_MEASURED}"
    return f"{name} {number_text((cell.ours[0], None), 2)} %" + (f" ({'; '.join(notes)})" if notes else "")
