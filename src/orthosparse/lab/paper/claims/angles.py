"""Do small angles slow the beginning of training, and only that?"""

from statistics import fmean

from orthosparse.lab.paper._rows import early_losses
from orthosparse.lab.paper._tables import column_of
from orthosparse.lab.paper.angles import FIRST
from orthosparse.lab.paper.claims._cells import are_comparable, end_of, percent
from orthosparse.lab.paper.claims._claim import FAILS, HOLDS, OPEN, Chapters, Claim

TITLE = "Small rotation angles slow the beginning of training"
STATEMENT = (
    "With all rotations by 1 degree, the training loss of ResNet32 is higher in the first epochs than with random "
    "angles or 80 degrees; after all epochs the three have competitive accuracies."
)
_NEAR = 1.0  # points within which accuracies are competitive
RULE = (
    f"The mean training loss of the first {FIRST} epochs is highest with 1 degree for every seed; the final accuracies "
    f"lie within {_NEAR:g} point."
)


def angles(chapters: Chapters) -> Claim:
    """Compare the first losses seed by seed, and the final accuracies."""
    table = chapters["angles"].rendered.tables[0]
    cells = column_of(table, table.columns[0].key)
    losses = {key: early_losses(cell.rows, FIRST) for key, cell in cells.items()}
    comparable = are_comparable(*cells.values())
    seeds = set.intersection(*(set(found) for found in losses.values())) if comparable else set()
    ends = [end for cell in cells.values() if (end := end_of(cell)) is not None]
    slower = bool(seeds) and all(
        losses["small"][seed] > max(losses["random"][seed], losses["large"][seed]) for seed in seeds
    )
    verdicts = [
        OPEN if not seeds else HOLDS if slower else FAILS,
        OPEN if len(ends) < len(cells) or not comparable else HOLDS if max(ends) - min(ends) <= _NEAR else FAILS,
    ]
    labels = {line.key: line.heads[0] for line in table.lines}
    said = []
    if seeds:
        listed = ", ".join(f"{labels[key]} {fmean(found[seed] for seed in seeds):.3f}" for key, found in losses.items())
        said.append(f"Mean training loss of the first {FIRST} epochs: {listed} (n = {len(seeds)}).")
    if ends:
        said.append(f"Final accuracy: {', '.join(percent(labels[key], cell) for key, cell in cells.items())}.")
    return Claim(TITLE, STATEMENT, RULE, verdicts, " ".join(said), [table])
