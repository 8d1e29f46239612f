from html.parser import HTMLParser

import pytest
import torch

from orthosparse.lab.rendering import (
    Page,
    Picture,
    Section,
    Table,
    Tile,
    chart_of,
    html_of,
    lines,
    picture_of,
    write_page,
)

VOID = {"meta", "link", "img", "br", "path", "use", "rect"}


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
    chart = chart_of("Loss", lines({"eoi": ([1, 2], [2.0, 1.0])}, x="epoch", y="loss"), "Falls.")
    picture = Picture("Mask", picture_of(torch.eye(3), torch.eye(3).bool()))
    table = Table(("start", "score", "note"), [("EOI", "1e-15", "a < b & c")], text=(0, 2), roles=["eoi"])
    folded = Table(("layer",), [("fc1",)], folded="one layer")
    section = Section("Results", "Some <b>text</b>.", [table, folded], [chart, picture], [picture])
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
    for text in ("A title", "A lead.", "99 %", "good", "Some <b>text</b>.", "a < b & c", "Falls.", "one layer", "fc1"):
        assert text in said
    assert reader.tags.count("figure") == 3
    assert reader.tags.count("details") == 1


def test_a_page_refers_to_nothing_outside_itself(page):
    reader = read(html_of(page))
    assert reader.references
    assert all(reference.startswith(("data:", "#")) for reference in reader.references)
    assert "script" not in reader.tags
    assert "@import" not in html_of(page)
    assert "default-src 'none'" in html_of(page)


def test_an_empty_page_is_a_page(tmp_path):
    write_page(Page("T", "L"), tmp_path / "deep" / "page.html")
    assert read((tmp_path / "deep" / "page.html").read_text()).tags.count("section") == 0
