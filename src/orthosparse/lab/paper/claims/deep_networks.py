"""Do networks of 1000 layers train from an exactly orthogonal sparse start?"""

from orthosparse.lab.paper._tables import column_of
from orthosparse.lab.paper.claims._cells import end_of, percent
from orthosparse.lab.paper.claims._claim import FAILS, HOLDS, OPEN, PARTLY, Chapters, Claim

TITLE = "1000 layers train"
STATEMENT = (
    "Networks of 1000 layers without shortcuts or normalization train from an exactly orthogonal sparse start "
    "about as well as from a dense one. The same masks on dense orthogonal weights (base) stay at chance."
)
_AHEAD = 10.0  # points by which a network that trains is above one at chance
_NEAR = 3.0  # points within which a sparse network follows the dense one: in the paper they are 1.5 and 2.3 apart
RULE = (
    f"EOI ends more than {_AHEAD:g} points above base and less than {_NEAR:g} below dense; in part where it is "
    "above base and one of the three trained for fewer epochs than the paper's."
)


def deep_networks(chapters: Chapters) -> Claim:
    """Compare the test accuracies of EOI with those of base and of the dense network, network by network."""
    table = chapters["deep_networks"].rendered.tables[0]
    found = {column.key: column_of(table, column.key) for column in table.columns}
    said, verdicts = [], []
    for column in table.columns:
        cells = [found[column.key][key] for key in ("erk/eoi", "dense/orthogonal", "erk/base")]
        ends = [end for cell in cells if (end := end_of(cell)) is not None]
        if len(ends) < len(cells):
            said.append(f"{column.label}: not measured.")
            verdicts.append(OPEN)
            continue
        said.append(f"{column.label}: {', '.join(map(percent, ('EOI', 'dense', 'base'), cells))}.")
        eoi, dense, base = ends
        near = eoi > dense - _NEAR or not (cells[0].whole and cells[1].whole)
        whole = all(cell.whole for cell in cells)
        verdicts.append((HOLDS if whole else PARTLY) if eoi > base + _AHEAD and near else FAILS)
    return Claim(TITLE, STATEMENT, RULE, verdicts, " ".join(said), chapters["deep_networks"].rendered.tables)
