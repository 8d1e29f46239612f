"""Tables as text and as HTML: alignment, tones, folding, and nothing that is not escaped."""

from xml.etree import ElementTree

import pytest

from orthosparse.tables import TONES, html_table, text_table


def page_of(*arguments, **options):
    return ElementTree.fromstring(f"<div>{html_table(*arguments, **options)}</div>")


def test_columns_are_as_wide_as_their_widest_cell():
    lines = text_table(["layer", "n"], [["a", "1"], ["body.0", "1,000"]], left=["layer"]).splitlines()
    assert lines == ["layer       n", "-------------", "a           1", "body.0  1,000"]


def test_numbers_stand_to_the_right_and_words_to_the_left():
    page = page_of(["layer", "got"], [["fc", "1,000"]])
    sides = [cell.get("style").split(";")[1] for cell in (*page.iter("th"), *page.iter("td"))]
    assert sides == ["text-align:left", "text-align:right"] * 2
    assert "tabular-nums" in page.findall(".//td")[1].get("style")


@pytest.mark.parametrize("tone", TONES)
def test_a_tone_is_a_colour(tone):
    page = page_of(["got"], [[("3", tone)]], [("well", tone), "plain"])
    assert page.find(".//td").text == "3"
    assert page.find(".//td").get("style").endswith(f"color:{TONES[tone]}")
    assert page.find("./p/span").get("style") == f"color:{TONES[tone]}"
    assert page.find("./p/br").tail == "plain"


def test_many_rows_are_folded_and_few_are_not():
    assert page_of(["n"], [["1"]] * 24).find("details") is None
    folded = page_of(["n"], [["1"]] * 25)
    assert folded.find("./details/summary").text == "25 rows"
    assert len(folded.findall("./details/table/tbody/tr")) == 25


def test_every_text_is_escaped():
    hostile = "<script>&\"'"
    page = page_of([hostile], [[hostile], [(hostile, "bad")]], [hostile, (hostile, "good")])
    assert page.find(".//script") is None
    assert [cell.text for cell in (*page.iter("th"), *page.iter("td"), *page.iter("span"))] == [hostile] * 4
