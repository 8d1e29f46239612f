from dataclasses import replace

from orthosparse.lab.inspection import page_of
from orthosparse.lab.rendering.html import html_of


def test_the_page_shows_spectra_orthogonality_and_gradients_of_every_start(found):
    page = page_of("Inspection of it", "A lead.", found, "Advice.", ["foot"])
    starts, layers = page.sections
    assert [figure.title for figure in starts.figures] == [
        "Singular values",
        "Distance from orthogonality",
        "Gradient norm",
        "Effective density",
    ]
    assert all([each.label for each in figure.series] == ["dense", "base", "EOI"] for figure in starts.figures)
    assert len(layers.tables[0].rows) == 7
    assert "all of 4 inputs" in starts.figures[0].caption
    assert "Advice." in html_of(page)


def test_each_remark_is_an_entry_of_a_list(found):
    report = replace(found[-1].report, rows=[replace(row, dead_inputs=1) for row in found[-1].report.rows])
    page = page_of("T", "L", [*found[:-1], replace(found[-1], report=report)], "", [])
    assert len(report.warnings) >= 7
    assert page.sections[1].notes == report.warnings
    assert all(f"<li>{warning}</li>" in html_of(page) for warning in report.warnings)


def test_where_only_the_largest_values_are_known_they_are_shown_by_rank(found):
    largest = replace(found[0].spectrum, values=found[0].spectrum.values[:1, :3], exact=False)
    (page,) = [page_of("T", "L", [replace(each, spectrum=largest) for each in found], "", [])]
    assert page.sections[0].figures[0].title == "Largest singular values"
    assert page.sections[0].figures[0].caption.endswith("3 of one input.")
    assert "±" in page.sections[0].tables[0].rows[0].cells[4].text
