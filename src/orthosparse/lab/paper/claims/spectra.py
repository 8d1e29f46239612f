"""Does EOI keep the singular values of the input-output Jacobian where a dense orthogonal network has them?"""

from collections.abc import Sequence

from orthosparse.lab.paper._layout import number_text
from orthosparse.lab.paper._study import INITS, METHODS
from orthosparse.lab.paper._tables import column_of
from orthosparse.lab.paper.claims._claim import FAILS, HOLDS, OPEN, PARTLY, Chapters, Claim
from orthosparse.lab.paper.singular_values import DENSE

TITLE = "EOI keeps the singular values of a dense network"
STATEMENT = (
    "At high sparsity the singular values of the input-output Jacobian vanish from a base start, fall from an AI "
    "start, and stay where a dense orthogonal network has them with EOI."
)
_NEAR = 20  # percent of the dense network's mean within which a mean singular value has stayed
RULE = (
    f"Under every distribution, the mean of EOI is within {_NEAR} % of the dense network's; and base has the smallest "
    "mean and EOI the largest of the three starts. In part where only one of the two is so. For each activation."
)


def spectra(chapters: Chapters) -> Claim:
    """Compare the mean singular values of the starts with those of the dense network, activation by activation."""
    table = chapters["singular_values"].rendered.tables[0]
    said, verdicts = [], []
    for column in table.columns:
        cells = {key: cell for key, cell in column_of(table, column.key).items() if cell.exists}
        means = {key: cell.ours[0] for key, cell in cells.items() if cell.ours is not None}
        if len(means) < len(cells) or DENSE.key not in means:
            verdicts.append(OPEN)
            continue
        dense = means[DENSE.key]
        starts = [[means[f"{method}/{init}"] for init in INITS] for method in METHODS if f"{method}/eoi" in means]
        by_init = dict(zip(INITS, zip(*starts, strict=True), strict=True))
        stays = all(abs(eoi / dense - 1) <= _NEAR / 100 for eoi in by_init["eoi"])
        ordered = all(base < ai < eoi for base, ai, eoi in starts)
        verdicts.append(HOLDS if stays and ordered else PARTLY if stays or ordered else FAILS)
        spans = ", ".join(f"{INITS[init]} {_span(found)}" for init, found in by_init.items())
        said.append(f"{column.label}: dense {_short(dense)}, {spans}.")
    answer = f"Mean singular values at density 0.05, over the distributions. {' '.join(said)}" if said else ""
    return Claim(TITLE, STATEMENT, RULE, verdicts, answer, [table] if said else [])


def _span(found: Sequence[float]) -> str:
    return f"{_short(min(found))} to {_short(max(found))}"


def _short(number: float) -> str:
    return number_text((number, None), 3)
