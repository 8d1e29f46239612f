"""What pages say from committed rows: the README's table, all items, the answers to the paper's claims, and pictures.

``python -m orthosparse.lab.paper.frontpage . results/*.jsonl`` writes them into a checkout.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path

from orthosparse.lab.paper import ITEMS, deep_networks, singular_values
from orthosparse.lab.paper._chapters import Chapter, chapters_of
from orthosparse.lab.paper._command import command_of
from orthosparse.lab.paper._headlines import fresh
from orthosparse.lab.paper._layout import seconds_text, text_table
from orthosparse.lab.paper._rows import Row, read_rows
from orthosparse.lab.paper.claims import page as claims_page
from orthosparse.lab.rendering.text import markdown_table, markdown_text
from orthosparse.lab.sweep.store import together_of

FRONT = {"singular_values": 1, "deep_networks": 2, "contemporary": 1}  # entries of items that the README shows
# Items of ours, and the pages of their tables.
STUDIES = {
    "aligned": "aligned.md",
    "aligned_200": "aligned_200.md",
    "strides": "strides_trained.md",
    "depthwise": "depthwise_cifar10.md",
}
BEGIN, END = "<!-- begin: make readme-table -->", "<!-- end: make readme-table -->"
_SHORT = 0.05  # seconds; less would read as none
_HEADS = "| item | command | machine and time | paper | ours |\n|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Entry:
    """What the pages say of a part of an item: the command that measures it, on which machines, and the numbers.

    Attributes:
        name: the item, as the command calls it.
        label: which part of it; empty where it has one alone.
    """

    name: str
    title: str
    label: str
    command: str
    machines: str
    paper: str
    ours: str


def entries(chapters: Iterable[Chapter]) -> Iterator[Entry]:
    """Yield the entries of all items that have rows."""
    for chapter, headline in fresh(chapters):
        command = command_of(chapter.name, ITEMS[chapter.name], headline.rows)
        machines = _machines(headline.rows)
        yield Entry(chapter.name, chapter.title, headline.label, command, machines, headline.paper, headline.ours)


def table(chapters: Iterable[Chapter]) -> str:
    """Return the README's table in Markdown: the first entries of some items."""
    found = [*entries(chapters)]
    lines = []
    for entry in chain(*([each for each in found if each.name == name][:count] for name, count in FRONT.items())):
        item = ". ".join(filter(None, (entry.title, entry.label)))
        lines.append(_row(item, f"`{entry.command}`", entry.machines, entry.paper, entry.ours))
    return _HEADS + "".join(lines)


def sections(chapters: Iterable[Chapter]) -> str:
    """Return a section in Markdown for each item that has rows."""
    parts = []
    for title, found in groupby(entries(chapters), key=attrgetter("title")):
        parts.append(f"## {markdown_text(title)}\n")
        for entry in found:
            parts += [f"**{markdown_text(entry.label)}**\n"] * bool(entry.label)
            parts.append(f"```console\n{entry.command}\n```\n\n{entry.machines}\n")
            parts.append(f"| paper | ours |\n|---|---|\n{_row(entry.paper, entry.ours)}")
    return "\n".join(parts)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def study(chapter: Chapter) -> str:
    """Return the tables of an item that have rows of the epochs it asks for, in Markdown, and the last of its notes."""
    parts = []
    for table in chapter.rendered.tables:
        if any(cell.ours and cell.whole for cells in table.cells for cell in cells):
            parts += [f"**{markdown_text(table.title)}**", markdown_table(text_table(table))]
    return "\n\n".join([*(parts or ["Not measured yet."]), markdown_text(chapter.rendered.notes[-1])]) + "\n"


def inserted(page: str, text: str) -> str:
    """Return the page with `text` between its marks.

    Raises:
        ValueError: the page does not have each mark once, in this order.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(f"page: expected {BEGIN!r} once, and after it {END!r} once")
    before, after = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}{END}{after.split(END)[1]}"


def _machines(rows: Sequence[Row]) -> str:
    """Return each machine with how many runs it made, and how long one took on average: alone, or so many at once."""
    parts = []
    groups = Counter((str(row["device"]), together_of(row)) for row in rows)
    for (device, together), count in groups.most_common():
        own = [row for row in rows if (str(row["device"]), together_of(row)) == (device, together)]
        mean = sum(row["wall_s"] for row in own) / count / together
        taken = seconds_text(mean) if mean >= _SHORT else "less than 0.1 s"
        shared = f", {together} at once" * (together > 1)
        parts.append(f"{device}: {count} run{'s' * (count > 1)} of {taken}{shared}")
    return "<br>".join(parts)


def write_pages(rows: list[Row], root: Path) -> None:
    """Write the tables of README and docs, the answers to the claims and the pictures into a checkout."""
    chapters, docs = chapters_of(ITEMS, rows), root / "docs"
    for page, text in ((root / "README.md", table(chapters)), (docs / "items.md", sections(chapters))):
        page.write_text(inserted(page.read_text(encoding="utf-8"), text), encoding="utf-8")
    for chapter in (each for each in chapters if each.name in STUDIES):
        (docs / "evidence" / STUDIES[chapter.name]).write_text(study(chapter), encoding="utf-8")
    (docs / "evidence" / "claims.md").write_text(claims_page.markdown(chapters), encoding="utf-8")
    assets = docs / "assets"
    deep_networks.save_figure(rows, assets / "deep_networks.png")
    deep_networks.save_figure(rows, assets / "deep_convolutional.png", model="cnn1000")
    singular_values.save_picture(rows, singular_values.points(), assets / "singular_values.png")


def main(arguments: Sequence[str]) -> int:
    """Rewrite the pages of a checkout, and say what could not be read."""
    root, *files = map(Path, arguments)
    rows, problems = read_rows(files)
    write_pages(rows, root)
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
