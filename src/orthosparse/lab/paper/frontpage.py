"""The table of the front page: what was measured, by which command, where and how fast, beside the paper's numbers.

``python -m orthosparse.lab.paper.frontpage README.md results/*.jsonl`` writes it between the two marks of the page.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper._chapters import chapters_of
from orthosparse.lab.paper._command import command_of
from orthosparse.lab.paper._headlines import fresh
from orthosparse.lab.paper._layout import seconds_text
from orthosparse.lab.paper._rows import Row, read_rows
from orthosparse.lab.sweep.store import together_of

BEGIN, END = "<!-- begin: make readme-table -->", "<!-- end: make readme-table -->"
_SHORT = 0.05  # seconds; less would read as none
_HEADS = "| item | command | machine and time | paper | ours |\n|---|---|---|---|---|\n"


def table(rows: Iterable[Row]) -> str:
    """Return the table in Markdown; items without rows are not in it."""
    lines = []
    for chapter, headline in fresh(chapters_of(ITEMS, list(rows))):
        command = command_of(chapter.name, ITEMS[chapter.name], headline.rows)
        cells = [headline.label, f"`{command}`", _machines(headline.rows), headline.paper, headline.ours]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n")
    return _HEADS + "".join(lines)


def inserted(page: str, text: str) -> str:
    """Return the page with `text` between its marks.

    Raises:
        ValueError: the page does not have each mark once, in this order.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(f"page: expected {BEGIN!r} once, and after it {END!r} once")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}{END}{rest.split(END)[1]}"


def _machines(rows: Sequence[Row]) -> str:
    """Return each machine with how many runs it made, and how long one took on average: alone, or so many at once."""
    told = []
    groups = Counter((str(row["device"]), together_of(row)) for row in rows)
    for (device, together), count in groups.most_common():
        own = [row for row in rows if (str(row["device"]), together_of(row)) == (device, together)]
        mean = sum(row["wall_s"] for row in own) / count / together
        taken = seconds_text(mean) if mean >= _SHORT else "less than 0.1 s"
        shared = f", {together} at once" * (together > 1)
        told.append(f"{device}: {count} run{'s' * (count > 1)} of {taken}{shared}")
    return "<br>".join(told)


def main(arguments: Sequence[str]) -> int:
    """Rewrite the table of a page, and say what could not be read."""
    page, *files = map(Path, arguments)
    rows, problems = read_rows(files)
    page.write_text(inserted(page.read_text(encoding="utf-8"), table(rows)), encoding="utf-8")
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
