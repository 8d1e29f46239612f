"""Is dynamic training a little better than static EOI?"""

from orthosparse.lab.paper._tables import column_of
from orthosparse.lab.paper.claims._cells import are_comparable, difference
from orthosparse.lab.paper.claims._claim import FAILS, HOLDS, OPEN, PARTLY, Chapters, Claim

TITLE = "Dynamic training is a little better than static EOI"
STATEMENT = (
    "SET and RigL end above every static start; static EOI stays within a standard deviation of them (ResNet56)."
)
RULE = "SET and RigL are ahead of static EOI by no more than their own standard deviation; in part where by more."


def dynamic(chapters: Chapters) -> Claim:
    """Compare SET and RigL with static EOI, seed by seed."""
    table = chapters["dynamic"].rendered.tables[0]
    said: list[str] = []
    verdicts = []
    for column in table.columns:
        cells = column_of(table, column.key)
        eoi, decided = cells["erk/eoi"], len(said)
        for key, label in (("erk/base/set", "SET"), ("erk/base/rigl", "RigL")):
            found, moving = difference(cells[key], eoi), cells[key].ours
            if found is None or moving is None or moving[1] is None or not are_comparable(cells[key], eoi):
                verdicts.append(OPEN)
                continue
            error = "" if found.error is None else f" ± {found.error:.2f}"
            within = "within" if found.value <= moving[1] else "more than"
            said.append(
                f"{column.label}: {label} minus static EOI, paired by seed: {found.value:+.2f}{error} points, {within} "
                f"its standard deviation of {moving[1]:.2f}."
            )
            verdicts.append(HOLDS if 0 < found.value <= moving[1] else PARTLY if found.value > 0 else FAILS)
        said += [f"{column.label}: not decided yet."] * (len(said) == decided)
    return Claim(TITLE, STATEMENT, RULE, verdicts, " ".join(said), [table])
