"""Does EOI keep the singular values of the input-output Jacobian at one?"""

from orthosparse.lab.paper._layout import number_text
from orthosparse.lab.paper._study import INITS
from orthosparse.lab.paper._tables import column_of, part_of
from orthosparse.lab.paper.claims._claim import FAILS, HOLDS, OPEN, Chapters, Claim

TITLE = "EOI keeps the singular values at one"
STATEMENT = (
    "At high sparsity the singular values of the input-output Jacobian vanish from a base start, fall from an AI "
    "start, and stay where a dense orthogonal network has them with EOI."
)
_ROUNDED = 0.005  # how far from one a mean singular value is that counts as one
RULE = (
    f"The means of EOI are within {_ROUNDED:g} of one, and those of every AI start are between those of every base "
    "start and one."
)


def spectra(chapters: Chapters) -> Claim:
    """Compare the mean singular values of the linear network by start, over the distributions."""
    table = chapters["singular_values"].rendered.tables[0]
    cells = column_of(table, "linear")
    means = {key: cell.ours[0] for key, cell in cells.items() if cell.ours is not None}
    if len(means) < len(cells):
        return Claim(TITLE, STATEMENT, RULE, [OPEN], "")
    by_init = {init: [mean for key, mean in means.items() if key.endswith(f"/{init}")] for init in INITS}
    exact = max(abs(mean - 1) for mean in by_init["eoi"]) < _ROUNDED
    ordered = max(by_init["base"]) < min(by_init["ai"]) < 1
    spans = ", ".join(f"{INITS[init]} {_short(min(found))} to {_short(max(found))}" for init, found in by_init.items())
    answer = f"Linear network, density 0.05, over the five distributions: mean singular value {spans}."
    verdict = HOLDS if exact and ordered else FAILS
    return Claim(TITLE, STATEMENT, RULE, [verdict], answer, [part_of(table, columns=["linear"])])


def _short(number: float) -> str:
    return number_text((number, None), 3)
