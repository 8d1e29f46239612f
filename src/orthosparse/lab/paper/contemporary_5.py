"""Contemporary networks at density 0.05, and SNIP with EOI at the lower rate that the paper gave it."""

from dataclasses import replace

from orthosparse.lab.paper._study import CONTEMPORARY, SEEDS, Accuracies, lines
from orthosparse.lab.paper.contemporary import NOTES, TABLE

__all__ = ["SEEDS", "TITLE", "experiments", "render"]

TITLE = "Test accuracy of contemporary networks, density 5 %"
_SLOW = Accuracies(
    "SNIP with EOI at a learning rate of 0.01",
    CONTEMPORARY[1:3],
    lines({"snip": "SNIP"}, {"eoi": "EOI, rate 0.01"}),
    {"density": 0.05, "lr": 0.01},
    item="contemporary_5_lr_0.01",
    better=None,
)
_TABLE = replace(
    TABLE,
    title=TITLE,
    columns=CONTEMPORARY[:4],
    fields={"density": 0.05},
    item="contemporary_5",
    notes=NOTES,
    below=[_SLOW],
)
experiments, render = _TABLE.experiments, _TABLE.render
