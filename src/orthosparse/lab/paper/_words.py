"""Numbers, cells and times as people read them."""

from orthosparse.lab.paper._rendered import Cell, Number, Table

NOT_MEASURED = "not measured"
NO_CELL = "–"


def number_text(number: Number | None, digits: int, *, none: str = "") -> str:
    """Return ``mean(deviation)``; what the digits would show as zero gets two significant ones.

    Example:
        >>> number_text((89.791, 0.3), 2), number_text((45000.0, None), 0), number_text((4.2e-7, None), 2)
        ('89.79(0.30)', '45,000', '4.2e-07')
    """
    if number is None:
        return none
    mean, std = number
    if mean and abs(mean) < 0.5 * 10.0**-digits:
        return f"{mean:.2g}" + ("" if std is None else f"({std:.1g})")
    return f"{mean:,.{digits}f}" + ("" if std is None else f"({std:,.{digits}f})")


def ours_text(cell: Cell, digits: int) -> str:
    """Return our side of a cell: the number and its seeds, or that there is none."""
    if not cell.exists:
        return NO_CELL
    text = number_text(cell.ours, digits, none=NOT_MEASURED)
    return f"{text} n={cell.seeds}" if cell.ours is not None else text


def difference_text(cell: Cell, digits: int) -> str:
    """Return ours less the paper's with its sign."""
    return "" if cell.difference is None else f"{cell.difference:+,.{digits}f}"


def digits_of(table: Table, index: int) -> int:
    """Return the digits of a column."""
    own = table.columns[index].digits
    return table.digits if own is None else own


def seconds_text(seconds: float) -> str:
    """Return a time in the largest unit that fits.

    Example:
        >>> seconds_text(0.5), seconds_text(90), seconds_text(7200)
        ('0.5 s', '1.5 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
