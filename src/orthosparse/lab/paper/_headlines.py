"""What pages say of an item: for each network, or in one line, the measured cells and the paper's."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from orthosparse.lab.paper._chapters import Chapter
from orthosparse.lab.paper._layout import DIVERGED, digits_of, number_text, seeds_text
from orthosparse.lab.paper._rows import Row
from orthosparse.lab.paper._tables import Cell, Column, Line, Table

FIGURE = "a figure"


@dataclass(frozen=True)
class Headline:
    """A part of an item: which one, the paper's and our numbers, and the rows behind ours."""

    label: str
    paper: str
    ours: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class _Part:
    """The part of an item's tables that pages show; empty tuples mean all of them.

    Attributes:
        whole: whether the part stands for the item, which is then named with all its runs.
        paper: what is shown where the paper has no number.
    """

    tables: int = 9
    columns: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    seeds: bool = True
    whole: bool = False
    paper: str = FIGURE


_PARTS = {
    "aligned": _Part(paper="not in it"),
    "aligned_200": _Part(paper="not in it"),
    "depthwise": _Part(paper="not in it"),
    "efficiency": _Part(tables=1, columns=("n = 2048",)),
    "efficientnet": _Part(paper="not in it"),
    "expected_density": _Part(columns=("largest_distance",)),
    "init_runtime": _Part(tables=1, blocks=("erk",)),
    "mask_pictures": _Part(columns=("orthogonality",)),
    "parameter_counts": _Part(columns=("kept",)),
    "ranks": _Part(seeds=False),
    "singular_values": _Part(columns=("linear",), blocks=("uniform",), whole=True),
    "strides": _Part(paper="not in it"),
}


def headlines(chapter: Chapter) -> list[Headline]:
    """Return the headlines of an item that has rows."""
    part = _PARTS.get(chapter.name, _Part())
    found = []
    if not chapter.rendered.tables and chapter.rendered.pictures:
        ours = "; ".join(f"{picture.title}: {picture.caption}" for picture in chapter.rendered.pictures)
        found.append(Headline("", "a drawing", ours, chapter.rows))
    for table in chapter.rendered.tables[: part.tables]:
        for index, column in enumerate(table.columns):
            cells = [(line, cells[index]) for line, cells in zip(table.lines, table.cells, strict=True)]
            measured = [
                (line, cell)
                for line, cell in cells
                if (cell.ours or cell.rows) and line.block in (part.blocks or [line.block])
            ]
            if column.key in (part.columns or [column.key]):
                found += [_headline(chapter, table, index, each, part) for each in _by_length(measured)]
    return found


def _by_length(measured: list[tuple[Line, Cell]]) -> list[list[tuple[Line, Cell]]]:
    """Return the cells of blocks that have a training of full length, then those of shorter trainings alone."""
    blocks = {line.block for line, cell in measured if cell.whole}
    parts = [[each for each in measured if (each[0].block in blocks) == whole] for whole in (True, False)]
    return [part for part in parts if part]


def _headline(chapter: Chapter, table: Table, index: int, measured: list[tuple[Line, Cell]], part: _Part) -> Headline:
    column = table.columns[index]
    digits = digits_of(table, column)
    paper = _blocks([(line, number_text(cell.paper and (cell.paper[0], None), digits)) for line, cell in measured])
    if paper and not all(cell.whole for _, cell in measured):
        paper = f"at full length:<br>{paper}"
    shared = {cell.setting for _, cell in measured}  # how all were trained stands at the end, exceptions beside them
    texts = [number_text(cell.ours and (cell.ours[0], None), digits, none=DIVERGED) for _, cell in measured]
    own = [cell.note if len(shared) > 1 else cell.note.removeprefix(cell.setting).lstrip("; ") for _, cell in measured]
    said = own[0] if len(set(own)) == 1 else ""  # the same for all, so once
    beside = [_bracketed([note] if note and not said else []) for note in own]
    ours = _blocks([(line, text + more) for (line, _), text, more in zip(measured, texts, beside, strict=True)])
    notes = [seeds_text(cell.seeds or len(cell.rows) for _, cell in measured)] if part.seeds else []
    notes += [note for note in shared if note and len(shared) == 1] + [said] * bool(said)
    rows = [] if part.whole else [row for _, cell in measured for row in cell.rows]
    label = column.label if table.title == chapter.title else f"{table.title}: {column.label}"
    rows = rows or _rows_of(chapter, column)
    short = "" if all(cell.whole for _, cell in measured) or len(shared) > 1 else f", {measured[0][1].setting}"
    return Headline(label + short, paper or part.paper, ours + _bracketed(notes), rows)


def _blocks(cells: Sequence[tuple[Line, str]]) -> str:
    """Return a line for each block: what its lines share, then what tells them apart, with the numbers."""
    lines = []
    for _, block in groupby([(line, text) for line, text in cells if text], key=lambda cell: cell[0].block):
        pairs = list(block)
        columns = list(zip(*(line.heads for line, _ in pairs), strict=True))
        shared = [heads[0] for heads in columns if len(pairs) > 1 and len(set(heads)) == 1]
        apart = [heads for heads in columns if len(pairs) == 1 or len(set(heads)) > 1]
        names = [" ".join(words) for words in zip(*apart, strict=True)]
        numbers = [f"{name}{_gap(name)}{text}" for name, (_, text) in zip(names, pairs, strict=True)]
        between = "; " if any("," in name for name in names) else ", "
        lines.append(": ".join([*shared, between.join(numbers)]))
    return "<br>".join(lines)


def _gap(name: str) -> str:
    """What stands between a name and its number: a name that ends in a number is set off."""
    return ": " if name[-1:].isdigit() or name[-1:] == "%" else " "


def _rows_of(chapter: Chapter, column: Column) -> list[Row]:
    """The rows of the column's network, where a column is one; else all."""
    model, _, data = column.key.partition("/")
    own = [row for row in chapter.rows if (row["fields"].get("model"), row["fields"].get("data")) == (model, data)]
    return own or chapter.rows


def _bracketed(notes: Sequence[str]) -> str:
    return f" ({'; '.join(notes)})" if notes else ""


def fresh(chapters: Iterable[Chapter]) -> Iterator[tuple[Chapter, Headline]]:
    """Yield the headlines of all items, without those whose rows an earlier item has shown already.

    The ranks are always shown: they are made of others' rows alone.
    """
    shown: set[tuple[str, int]] = set()
    for chapter in chapters:
        found = [(each, {(row["key"], row["seed"]) for row in each.rows}) for each in headlines(chapter)]
        for headline, names in found:
            if chapter.name == "ranks" or names - shown:
                yield chapter, headline
        shown |= {name for _, names in found for name in names}
