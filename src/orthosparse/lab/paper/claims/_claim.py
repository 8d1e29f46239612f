"""A claim of the paper with our answer, and how the verdicts of its parts combine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orthosparse.lab.paper._chapters import Chapter
from orthosparse.lab.paper._tables import Table

Chapters = Mapping[str, Chapter]  # by the names of their items
HOLDS, PARTLY, FAILS, OPEN = "holds", "holds in part", "does not hold", "not decided yet"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and our answer to it.

    Attributes:
        statement: what the paper says.
        rule: when it counts as held.
        verdicts: HOLDS, PARTLY, FAILS or OPEN, for each network or measure that the rule is applied to.
        answer: our numbers in sentences.
        tables: the numbers behind them.
    """

    title: str
    statement: str
    rule: str
    verdicts: Sequence[str]
    answer: str
    tables: Sequence[Table] = ()

    @property
    def verdict(self) -> str:
        """The verdict of all parts if they agree; else in part, if any part holds."""
        found = set(self.verdicts) or {OPEN}
        if len(found) == 1:
            return found.pop()
        return PARTLY if {HOLDS, PARTLY} & found else FAILS

    @property
    def counts(self) -> str:
        """How many parts have which verdict."""
        order = (HOLDS, PARTLY, FAILS, OPEN)
        return ", ".join(
            f"{verdict}: {found} of {len(self.verdicts)}"
            for verdict in order
            if (found := self.verdicts.count(verdict))
        )
