"""Does SNIP with EOI fail on the deeper ResNets at density 0.05?"""

from orthosparse.lab.paper._study import SEEDS
from orthosparse.lab.paper._tables import column_of, part_of
from orthosparse.lab.paper.claims._cells import percent
from orthosparse.lab.paper.claims._claim import FAILS, HOLDS, OPEN, Chapters, Claim

TITLE = "At density 0.05, SNIP with EOI fails on the deeper ResNets"
STATEMENT = (
    "SNIP with EOI reaches 57 % on ResNet56 and 26 % on ResNet110, with deviations of 43 and 36 points; a learning "
    "rate of 0.01 restores 85 %."
)
_FAILED = 80.0  # percent below which a ResNet on CIFAR-10 has failed
RULE = (
    f"At least one seed of the network diverges or ends below {_FAILED:g} %, after all epochs; it does not hold "
    f"once {len(SEEDS)} seeds train."
)


def snip(chapters: Chapters) -> Claim:
    """Count the seeds that fail, network by network, and show what a lower learning rate gives."""
    table, slow = chapters["contemporary_5"].rendered.tables
    keys = ["snip/base", "snip/ai", "snip/eoi"]
    eoi = {column.label: column_of(table, column.key)["snip/eoi"] for column in table.columns}
    said, verdicts = [], []
    for label, cell in eoi.items():
        ends = [100 * (row["metrics"].get("test_accuracy") or 0.0) for row in cell.rows]  # none where a run diverged
        failed = sum(end < _FAILED for end in ends)
        if ends:
            mean = "diverged" if cell.ours is None else f"{cell.ours[0]:.2f} %"
            notes = [f"n = {len(ends)}", *[f"{failed} failed"] * bool(failed), *[cell.setting] * (not cell.whole)]
            said.append(f"{label}: {mean} ({', '.join(notes)}).")
        if cell.paper is not None and cell.paper[0] < _FAILED:
            # Some of the paper's five seeds train too; and what trains for fewer epochs may yet fail.
            enough = cell.whole and len(ends) >= len(SEEDS)
            verdicts.append(HOLDS if failed and cell.whole else FAILS if enough else OPEN)
    restored = [
        f"{column.label}: {percent('EOI', cell)}"
        for column, cell in zip(slow.columns, slow.cells[0], strict=True)
        if cell.ours
    ]
    said.append(f"At a learning rate of 0.01: {', '.join(restored) or 'not measured'}.")
    return Claim(TITLE, STATEMENT, RULE, verdicts, " ".join(said), [part_of(table, lines=keys), slow])
