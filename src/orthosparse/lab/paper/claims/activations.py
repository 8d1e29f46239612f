"""Does EOI lead with other activations too?"""

from statistics import fmean

from orthosparse.lab.paper._study import INITS, METHODS
from orthosparse.lab.paper._tables import column_of, part_of
from orthosparse.lab.paper.claims._cells import are_comparable
from orthosparse.lab.paper.claims._claim import FAILS, HOLDS, OPEN, PARTLY, Chapters, Claim
from orthosparse.lab.paper.ranks import ranked, standing

TITLE = "EOI leads with other activations too"
STATEMENT = (
    "In a table by activation, at density 0.1, EOI is the best start of ResNet32 with leaky ReLU and SELU under "
    "every distribution; of VGG-16 under most of them."
)
RULE = "EOI leads under at least as many distributions as in the paper; in part where it has the best mean rank."


def activations(chapters: Chapters) -> Claim:
    """Count the distributions under which EOI leads, for each network and activation."""
    table = chapters["activations"].rendered.tables[0]
    said, verdicts, measured = [], [], []
    for column in table.columns:
        if column.key.endswith("/relu"):  # with the contemporary networks
            continue
        cells = column_of(table, column.key)
        starts = [{init: cells[f"{method}/{init}"] for init in INITS} for method in METHODS]
        papers = [rank for each in starts for rank in ranked({init: cell.paper for init, cell in each.items()})]
        ranks = [
            rank
            for each in starts
            if are_comparable(*each.values())
            for rank in ranked({init: standing(cell.ours, cell.lost) for init, cell in each.items()})
        ]
        if len(ranks) < len(papers):
            verdicts.append(OPEN)
            continue
        led, led_in_paper = (sum(rank["eoi"] == 1 for rank in found) for found in (ranks, papers))
        mean = {init: fmean(rank[init] for rank in ranks) for init in INITS}
        first = min(mean, key=lambda init: mean[init]) == "eoi"
        verdicts.append(HOLDS if led >= led_in_paper else PARTLY if first else FAILS)
        seeds = max(cell.seeds for cell in cells.values())
        listed = ", ".join(f"{INITS[init]} {value:.2f}" for init, value in mean.items())
        said.append(
            f"{column.label}: EOI leads under {led} of {len(papers)} distributions (the paper: {led_in_paper}); mean "
            f"rank {listed} (n = {seeds})."
        )
        measured.append(column.key)
    said += [f"{verdicts.count(OPEN)} of {len(verdicts)} columns are not measured."] * (OPEN in verdicts)
    tables = [part_of(table, columns=measured)] if measured else []
    return Claim(TITLE, STATEMENT, RULE, verdicts, " ".join(said), tables)
