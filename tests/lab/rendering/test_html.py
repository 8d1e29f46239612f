from html.parser import HTMLParser

import numpy as np
import pytest

from orthosparse.lab.rendering.contents import Cell, Column, Page, Picture, Row, Section, Table, Tile, plain_table
from orthosparse.lab.rendering.figures import lines
from orthosparse.lab.rendering.html import html_of, write_page
from orthosparse.lab.rendering.pictures import picture_of
from orthosparse.lab.rendering.theme import COLOURS

VOID = {"meta", "link", "img", "input", "br", "path", "use", "rect"}


class Reader(HTMLParser):
    """Checks that tags close in order, and keeps the texts and the references."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.references, self.tags = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "xlink:href", "action", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def page():
    chart = lines("Loss", {"eoi": ([1, 2], [2.0, 1.0])}, x="epoch", y="loss", caption="Falls.")
    picture = Picture("Mask", picture_of(np.eye(3), np.eye(3)))
    table = plain_table(("start", "score", "note"), [("EOI", "1e-15", "a < b & c")], text=(0, 2), roles=["eoi"])
    folded = plain_table(("layer",), [("fc1",)], folded="one layer")
    section = Section("Results", "Some <b>text</b>.", [table, folded], [chart, picture], [picture], ["A note."])
    return Page("A title", "A lead.", [Tile("EOI", "99 %", "good", "eoi")], [section], ["made by hand"])


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader


def test_a_page_is_well_formed_and_says_everything_once_escaped(page):
    reader = read(html_of(page))
    said = " ".join(reader.texts)
    for text in (
        "A title",
        "A lead.",
        "99 %",
        "good",
        "Some <b>text</b>.",
        "a < b & c",
        "Falls.",
        "one layer",
        "A note.",
    ):
        assert text in said
    assert reader.tags.count("figure") == 3
    assert reader.tags.count("details") == 1


def test_a_page_refers_to_nothing_outside_itself(page):
    reader = read(html_of(page))
    assert reader.references
    assert all(reference.startswith(("data:", "#")) for reference in reader.references)
    assert "@import" not in html_of(page)
    assert "default-src 'none'" in html_of(page)


def test_an_empty_page_is_a_page(tmp_path):
    write_page(Page("T", "L"), tmp_path / "deep" / "page.html")
    assert read((tmp_path / "deep" / "page.html").read_text()).tags.count("section") == 0


def test_a_page_that_does_not_fit_leaves_the_old_one(tmp_path, small_disk):
    path = tmp_path / "page.html"
    path.write_text("old")
    with small_disk(2**12), pytest.raises(OSError, match=r"page\.html"):
        write_page(Page("T", "L" * 2**12), path)
    assert path.read_text() == "old"


def test_columns_of_one_group_share_a_heading_and_a_cell():
    columns = [Column("init", text=True), Column("paper", "net", model="Net"), Column("ours", "net", model="Net")]
    row = Row([Cell("EOI"), Cell("1", kind="paper"), Cell("2", mark="column", note="n <1>")], method="ERK|EOI")
    text = html_of(Page("T", "L", sections=[Section("S", tables=[Table(columns, [row])])]))
    reader = read(text)
    assert (reader.tags.count("th"), reader.tags.count("td")) == (2, 2)
    assert '<tr data-method="ERK|EOI">' in text
    assert 'data-label="net" data-model="Net"><span class="paper ">1</span>' in text
    assert 'class=" column" tabindex="0" title="n &lt;1&gt;">2 *</span>' in text


def test_runs_and_filters_stand_on_a_page_that_has_them():
    plain, full = (
        html_of(Page("T", "L")),
        html_of(Page("T", "L", filters=(["A"], ["B"]), runs='[{"name": "</script>"}]')),
    )
    assert 'id="runs"' not in plain
    assert "<select" not in plain
    assert read(full).tags.count("select") == 3
    assert r'"name": "\u003c/script>"' in full


def test_css_declares_every_colour_for_light_and_dark_pages():
    text = html_of(Page("T", "L"))
    assert all(f"--{role}: {shade};" in text for role, shades in COLOURS.items() for shade in shades)
