"""Tables as Markdown and LaTeX."""

import pytest

from orthosparse.lab.rendering.contents import Cell, Column, Row, Table
from orthosparse.lab.rendering.text import latex_table, markdown_table, markdown_text

TABLE = Table(
    [Column("init", text=True), Column("paper", "net_1"), Column("ours", "net_1")],
    [
        Row([Cell("a|b"), Cell("1 %", mark="block"), Cell("2", mark="column", note="n_1")], block="x"),
        Row([Cell("c"), Cell("–"), Cell("+3 ± 1 ‡", note="n_1")], block="y"),
    ],
)


def test_markdown_marks_notes_and_escapes():
    assert markdown_table(TABLE).splitlines() == [
        r"| init | net\_1 paper | net\_1 ours |",
        "|---|---|---|",
        r"| a\|b | **1 %** | ***2*** (n\_1) |",
        r"| c | – | +3 ± 1 ‡ (n\_1) |",
    ]


def test_latex_spans_groups_and_numbers_its_notes():
    assert latex_table(TABLE).splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r" & \multicolumn{2}{c}{net\_1} \\",
        r"init & paper & ours \\",
        r"\midrule",
        r"a|b & \textbf{1 \%} & \underline{\textbf{2}}\textsuperscript{1} \\",
        r"\midrule",
        r"c & -- & +3 $\pm$ 1 $^\ddagger$\textsuperscript{1} \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par{\footnotesize \textsuperscript{1} n\_1\par}",
    ]


@pytest.mark.parametrize("text", ["<script>", "*a*", "_b_", "`c`", "[d](e)", "f|g", "# h", "~~i~~", r"\*"])
def test_markdown_shows_a_text_as_it_is(text):
    markdown = pytest.importorskip("markdown")
    from html import unescape

    shown = unescape(markdown.markdown(markdown_text(text)))
    assert shown.replace(r"\|", "|").replace(r"\~", "~").replace(r"\<", "<").replace(r"\>", ">") == f"<p>{text}</p>"
