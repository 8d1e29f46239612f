"""The page of the claims: a summary, how many cells agree with the paper's, and a section for each claim."""

from collections.abc import Sequence

from orthosparse.lab.paper._chapters import Chapter
from orthosparse.lab.paper._layout import text_table
from orthosparse.lab.paper.claims import claims_of
from orthosparse.lab.paper.statistics import Difference, is_clear
from orthosparse.lab.rendering.text import markdown_table, markdown_text

# Items whose tables have the paper's test accuracies.
_COMPARED = ("deep_networks", "contemporary", "contemporary_5", "activations", "angles")


def markdown(chapters: Sequence[Chapter]) -> str:
    """Return the page as Markdown."""
    claims = claims_of(chapters).values()
    parts = ["| claim | our answer | networks or measures |", "|---|---|---|"]
    parts += [f"| {markdown_text(claim.title)} | **{claim.verdict}** | {claim.counts} |" for claim in claims] + [""]
    parts += [agreement(chapters), ""]
    for claim in claims:
        parts += [f"## {markdown_text(claim.title)}", "", f"*The paper:* {markdown_text(claim.statement)}", ""]
        parts += [f"*Ours:* **{claim.verdict}.** {markdown_text(claim.answer)}".rstrip(), ""]
        parts += [f"*Rule:* {markdown_text(claim.rule)}", ""]
        for table in claim.tables:
            parts += [f"**{markdown_text(table.title)}**", "", markdown_table(text_table(table)), ""]
    return "\n".join(parts)


def agreement(chapters: Sequence[Chapter]) -> str:
    """Say how many test accuracies differ from the paper's by more than two standard errors."""
    differences = {}  # by their rows: the dense networks stand in several tables
    for table in (table for chapter in chapters if chapter.name in _COMPARED for table in chapter.rendered.tables):
        for cell in (cell for cells in table.cells for cell in cells):
            if cell.difference is not None and cell.error is not None:
                names = frozenset((row["key"], row["seed"]) for row in cell.rows)
                differences[names] = Difference(cell.difference, cell.error)
    clear = sum(map(is_clear, differences.values()))
    return (
        f"{len(differences)} test accuracies can be compared with the paper's; {clear} of them differ by more than two "
        "standard errors."
    )
