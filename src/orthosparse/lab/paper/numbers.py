"""The paper's numbers: mean and deviation of every cell of its tables, and of the results that its text states."""

import json
from functools import cache
from importlib.resources import files

from orthosparse.lab.paper._contents import Number

Numbers = dict[str, dict[str, Number]]


@cache
def tables() -> dict[str, Numbers]:
    """Return all tables: by item, line (``distribution/scheme``) and column (``model/data``)."""
    text = files("orthosparse.lab.paper").joinpath("numbers.json").read_text(encoding="utf-8")
    found = json.loads(text)
    return {
        item: {line: {column: (mean, std) for column, (mean, std) in cells.items()} for line, cells in lines.items()}
        for item, lines in found.items()
    }


def number(item: str, line: str, column: str) -> Number | None:
    """Return a cell of the paper, None where it has none.

    Example:
        >>> number("contemporary", "erk/eoi", "resnet32/cifar10")
        (89.79, 0.38)
    """
    return tables().get(item, {}).get(line, {}).get(column)
