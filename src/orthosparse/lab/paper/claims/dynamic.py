"""Is dynamic training a little better than static EOI?"""

from orthosparse.lab.paper._study import INITS
from orthosparse.lab.paper._tables import column_of
from orthosparse.lab.paper.claims._cells import are_comparable, difference
from orthosparse.lab.paper.claims._claim import FAILS, HOLDS, OPEN, PARTLY, Chapters, Claim
from orthosparse.lab.paper.statistics import Difference

TITLE = "Dynamic training is a little better than static EOI"
STATEMENT = (
    "SET and RigL end above every static start; static EOI stays within a standard deviation of them (ResNet56)."
)
RULE = (
    "SET and RigL are ahead of every static start, and of EOI by no more than their own standard deviation; in part "
    "where by more."
)


def dynamic(chapters: Chapters) -> Claim:
    """Compare SET and RigL with every static start, seed by seed."""
    table = chapters["dynamic"].rendered.tables[0]
    said: list[str] = []
    verdicts = []
    for column in table.columns:
        cells = column_of(table, column.key)
        static, decided = [cells[f"erk/{init}"] for init in INITS], len(said)
        for key, label in (("erk/base/set", "SET"), ("erk/base/rigl", "RigL")):
            moving = cells[key]
            leads = {init: lead for init in INITS if (lead := difference(moving, cells[f"erk/{init}"])) is not None}
            deviation = None if moving.ours is None else moving.ours[1]
            if len(leads) < len(static) or deviation is None or not are_comparable(moving, *static):
                verdicts.append(OPEN)
                continue
            listed = ", ".join(f"{INITS[init]} {_points(lead)}" for init, lead in leads.items())
            near = leads["eoi"].value <= deviation
            said.append(
                f"{column.label}: {label} minus static starts, paired by seed: {listed}; the last is "
                f"{'within' if near else 'more than'} its standard deviation of {deviation:.2f}."
            )
            ahead = min(lead.value for lead in leads.values()) > 0
            verdicts.append((HOLDS if near else PARTLY) if ahead else FAILS)
        said += [f"{column.label}: not decided yet."] * (len(said) == decided)
    return Claim(TITLE, STATEMENT, RULE, verdicts, " ".join(said), [table])


def _points(lead: Difference) -> str:
    return f"{lead.value:+.2f}" + ("" if lead.error is None else f" ± {lead.error:.2f}")
