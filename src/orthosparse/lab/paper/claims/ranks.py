"""Is EOI first in mean rank on the contemporary networks?"""

from collections.abc import Mapping

from orthosparse.lab.paper._study import INITS, METHODS
from orthosparse.lab.paper._tables import Cell, column_of, part_of
from orthosparse.lab.paper.claims._cells import are_comparable, difference
from orthosparse.lab.paper.claims._claim import FAILS, HOLDS, OPEN, Chapters, Claim
from orthosparse.lab.paper.statistics import is_clear

TITLE = "EOI is first in rank on contemporary networks"
STATEMENT = (
    "Over the density distributions, EOI has the best mean rank on most of the contemporary networks at density 0.1."
)
RULE = "EOI has the smallest mean rank over all distributions, by however little."


def ranks(chapters: Chapters) -> Claim:
    """Compare the mean ranks of the starts, network by network."""
    table, accuracies = chapters["ranks"].rendered.tables[0], chapters["contemporary"].rendered.tables[0]
    said, verdicts, measured = [], [], []
    for column in table.columns:
        cells = column_of(table, column.key)
        means = {init: cell.ours[0] for init, cell in cells.items() if cell.ours is not None}
        if len(means) < len(INITS):
            continue
        first = min(means, key=lambda init: means[init]) == "eoi"
        found = column_of(accuracies, column.key)
        verdicts.append((HOLDS if first else FAILS) if all(_is_measured(found, method) for method in METHODS) else OPEN)
        listed = ", ".join(f"{INITS[init]} {mean:.2f}" for init, mean in means.items())
        said.append(f"{column.label}: mean rank {listed} ({cells['eoi'].note}).")
        said += _pairs(found)
        measured.append(column.key)
    missing = len(table.columns) - len(verdicts)
    said += [f"{missing} of {len(table.columns)} networks are not measured."] if missing else []
    verdicts += [OPEN] * missing
    tables = [part_of(table, columns=measured)] if measured else []
    return Claim(TITLE, STATEMENT, RULE, verdicts, " ".join(said), tables)


def _is_measured(cells: Mapping[str, Cell], method: str) -> bool:
    """Return whether all starts of a distribution are measured, for the paper's epochs and in one precision."""
    starts = [cells[f"{method}/{init}"] for init in INITS]
    return are_comparable(*starts) and all(start.rows for start in starts)


def _pairs(cells: Mapping[str, Cell]) -> list[str]:
    """Say how far EOI is ahead of base and AI, seed by seed, where both have several seeds."""
    said = []
    for method, label in METHODS.items():
        for other in ("base", "ai"):
            found = difference(cells[f"{method}/eoi"], cells[f"{method}/{other}"])
            if found is not None and found.error is not None:
                clear = "more" if is_clear(found) else "not more"
                numbers = f"{found.value:+.2f} ± {found.error:.2f}"
                said.append(
                    f"{label}, EOI minus {INITS[other]}, paired by seed: {numbers}, {clear} than two standard errors."
                )
    return said
