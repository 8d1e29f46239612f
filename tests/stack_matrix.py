"""The table of what masked and compact models have been tested with, from the marks of the tests.

    python tests/stack_matrix.py     writes the table into docs/howto/stack.md

A test that shows one cell has the mark ``@pytest.mark.stack("DDP", "masked")``, and a third argument "refused" if it
shows that something is refused.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "howto" / "stack.md"
ROWS = ("compile", "export", "DDP", "FSDP2", "TP", "DCP with broadcast", "EMA", "AMP")
COLUMNS = ("masked", "compact")
BEGIN, END = "<!-- from the tests: python tests/stack_matrix.py -->", "<!-- end -->"


def marks() -> Iterator[tuple[str, str, str, str]]:
    """Yield (row, column, what it shows, where) of every test that carries the mark."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text()
        if "pytest.mark.stack" not in source:
            continue
        for function in ast.walk(ast.parse(source)):
            for mark in getattr(function, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.stack":
                    row, column, *shown = (ast.literal_eval(argument) for argument in mark.args)
                    yield (
                        row,
                        column,
                        *(shown or ["tested"]),
                        f"{path.relative_to(ROOT / 'tests').as_posix()}::{function.name}",
                    )


def table() -> str:
    """Return the table in Markdown, with the tests of each cell below it."""
    cells: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    shows: dict[tuple[str, str], str] = {}
    for row, column, shown, where in marks():
        cells[row, column].append(where)
        shows[row, column] = shown
    lines = [f"| | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
    for row in ROWS:
        lines.append(f"| {row} | {' | '.join(shows.get((row, column), '') for column in COLUMNS)} |")
    tests = [
        f"- {row}, {column}: {', '.join(f'`{where}`' for where in cells[row, column])}"
        for row in ROWS
        for column in COLUMNS
        if cells[row, column]
    ]
    return "\n".join([*lines, "", *tests])


def with_table(page: str) -> str:
    """Return the page with the table between its two comments."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
