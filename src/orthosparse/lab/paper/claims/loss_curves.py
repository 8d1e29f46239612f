"""Do networks learn faster from an orthogonal sparse start?"""

from collections.abc import Iterable

from orthosparse.lab.paper._rows import early_losses
from orthosparse.lab.paper._tables import Cell, column_of
from orthosparse.lab.paper.claims._cells import are_comparable
from orthosparse.lab.paper.claims._claim import FAILS, HOLDS, OPEN, PARTLY, Chapters, Claim
from orthosparse.lab.paper.loss_curves import EARLY
from orthosparse.lab.paper.statistics import Difference, paired

TITLE = "Networks learn faster from an orthogonal sparse start"
STATEMENT = (
    "At density 0.05 a sparse orthogonal start improves the training of the MLP in practically every case, most of all "
    "in its first steps, and with ReLU too; less so under SynFlow and SNIP."
)
RULE = (
    f"The mean training loss of the first {EARLY} epochs is lower from EOI than from the base start by more than two "
    "standard errors, paired by seed; in part where it is lower by less. For each activation and distribution."
)


def loss_curves(chapters: Chapters) -> Claim:
    """Compare the first losses from EOI with those from the base start, and both with AI's, seed by seed."""
    table = chapters["loss_curves"].rendered.tables[-1]
    verdicts, others, starts = [], [], []
    for column in table.columns:
        cells = column_of(table, column.key)
        for line in table.lines:
            if not line.key.endswith("/eoi") or not cells[line.key].exists:
                continue
            base, ai, eoi = (cells[f"{line.block}/{init}"] for init in ("base", "ai", "eoi"))
            found = _below(eoi, base)
            verdicts.append(_verdict(found))
            starts.append((base, ai, eoi))
            if found is not None and verdicts[-1] != HOLDS and eoi.ours is not None and base.ours is not None:
                others.append(f"{column.label} {line.heads[0]} {eoi.ours[0]:.3f} (base {base.ours[0]:.3f})")
    answer = (
        f"EOI is clearly below base in {verdicts.count(HOLDS)} of {len(verdicts)} cases. AI is clearly below base in "
        f"{_clear((ai, base) for base, ai, _ in starts)}, below EOI in {_clear((ai, eoi) for _, ai, eoi in starts)}, "
        f"and EOI is clearly below AI in {_clear((eoi, ai) for _, ai, eoi in starts)}."
    )
    answer += f" Cases in which EOI is not clearly below: {', '.join(others)}." if others else ""
    return Claim(TITLE, STATEMENT, RULE, verdicts, "" if set(verdicts) == {OPEN} else answer, [table])


def _below(one: Cell, other: Cell) -> Difference | None:
    """Return how far the losses of one cell are below those of another, paired by seed; None if not comparable."""
    if not are_comparable(one, other):
        return None
    return paired(early_losses(other.rows, EARLY), early_losses(one.rows, EARLY))


def _clear(pairs: Iterable[tuple[Cell, Cell]]) -> int:
    """Return in how many pairs the first cell is clearly below the second."""
    return sum(_verdict(_below(*pair)) == HOLDS for pair in pairs)


def _verdict(below: Difference | None) -> str:
    if below is None:
        return OPEN
    if below.value <= 0:
        return FAILS
    return HOLDS if below.error is not None and below.value > 2 * below.error else PARTLY
