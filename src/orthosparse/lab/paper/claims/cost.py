"""Does AI cost far more than EOI?"""

from collections.abc import Mapping

from orthosparse.lab.paper._tables import column_of, part_of
from orthosparse.lab.paper.claims._claim import FAILS, HOLDS, Chapters, Claim
from orthosparse.lab.paper.statistics import AI

TITLE = "AI costs far more than EOI"
STATEMENT = (
    "Sampling a matrix by EOI is circa 100 times as fast as optimizing one by AI, and in a whole network AI adds "
    "minutes to the first epoch where EOI adds next to nothing."
)
_TIMES = 100.0  # times as long as EOI that AI takes at least for one matrix, in the paper's words
_MINUTES = 60.0  # seconds that AI adds at least, where the claim about networks holds
RULE = (
    f"AI takes at least {_TIMES:g} times as long on every size of a matrix; and it adds at least {_MINUTES:g} s to "
    "the first epoch of every network."
)


def cost(chapters: Chapters) -> Claim:
    """Compare the seconds of AI with those of EOI, on one matrix and in whole networks."""
    times = chapters["efficiency"].rendered.tables[0]
    cells = {line.key: row for line, row in zip(times.lines, times.cells, strict=True)}
    ratios: dict[str, dict[str, float]] = {}  # by the note, as AI has few iterations on large matrices
    for size, plain, exact in zip(times.columns, cells["ai-plain"], cells["eoi"], strict=True):
        if plain.ours is not None and exact.ours is not None:
            ratios.setdefault(plain.note, {})[size.label] = plain.ours[0] / exact.ours[0]
    said = [_ratios(note, found) for note, found in ratios.items()]
    table = chapters["init_runtime"].rendered.tables[0]
    added = {}
    for column in table.columns:
        ai, eoi = (column_of(table, column.key)[key].ours for key in ("erk/ai", "erk/eoi"))
        if ai is not None and eoi is not None:
            added[column.key] = ai[0]
            said.append(f"{column.label}, ERK: AI adds {ai[0]:.2f} s to the first epoch, EOI {eoi[0]:.2f} s.")
    least = min((ratio for found in ratios.values() for ratio in found.values()), default=0.0)
    verdicts = [HOLDS if least >= _TIMES else FAILS] * bool(ratios)
    verdicts += [HOLDS if min(added.values(), default=0.0) >= _MINUTES else FAILS] * bool(added)
    said += [f"In networks {AI}."] * bool(added and min(added.values(), default=0.0) < _MINUTES)
    tables = [part_of(table, lines=["erk/base", "erk/ai", "erk/eoi"], columns=[*added])] if added else []
    return Claim(TITLE, STATEMENT, RULE, verdicts, " ".join(said), tables)


def _ratios(note: str, ratios: Mapping[str, float]) -> str:
    """Say how many times as long as EOI AI takes on matrices of some sizes; the note says after how few iterations."""
    sizes = " to ".join(dict.fromkeys([*ratios][:1] + [*ratios][-1:]))
    where = f"One matrix, {sizes}, after {note}" if note else f"One matrix, {sizes}"
    return f"{where}: AI takes {min(ratios.values()):,.0f} to {max(ratios.values()):,.0f} times as long as EOI."
