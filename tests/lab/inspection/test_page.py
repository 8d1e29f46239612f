from dataclasses import replace

from orthosparse.lab.inspection.page import by_layer, page_of, remarks, summary
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
    html = html_of(page)
    assert len(report.warnings) >= 7
    assert page.sections[1].notes == report.warnings
    assert all(f"<li>{warning}</li>" in html for warning in report.warnings)


def test_where_only_the_largest_values_are_known_they_are_shown_by_rank(found):
    largest = replace(found[0].spectrum, values=found[0].spectrum.values[:1, :3], exact=False)
    (page,) = [page_of("T", "L", [replace(each, spectrum=largest) for each in found], "", [])]
    assert page.sections[0].figures[0].title == "Largest singular values"
    assert page.sections[0].figures[0].caption.endswith("3 of one input.")
    assert "±" in page.sections[0].tables[0].rows[0].cells[4].text


def texts(table):
    return [column.heading for column in table.columns], [[cell.text for cell in row.cells] for row in table.rows]


def test_the_summary_has_a_row_for_each_start(found):
    headings, rows = texts(summary(found))
    assert [row[0] for row in rows] == ["dense", "base", "EOI"]
    assert [row[1] for row in rows] == ["1.0000", "0.0500", "0.0500"]
    assert all(len(row) == len(headings) for row in rows)


def test_the_layers_are_told_in_order_with_what_sparsify_did(found):
    headings, rows = texts(by_layer(found))
    assert [row[0] for row in rows] == [f"fc{index}" for index in range(1, 8)]
    first = dict(zip(headings, rows[0], strict=True))
    row = found[-1].report.rows[0]
    assert (first["shape"], first["active"]) == ("100x36", f"{row.got:,}")
    assert float(first["orthogonality EOI"]) < 1e-5 < float(first["orthogonality base"])
    assert all(len(row) == len(headings) for row in rows)


def test_a_long_table_is_cut_in_the_middle(found):
    _, rows = texts(by_layer(found, most=3))
    assert [row[0] for row in rows] == ["fc1", "... 4 more", "fc6", "fc7"]


def test_dead_channels_and_layers_without_a_gradient_are_remarked_on(found):
    assert remarks(found) == found[-1].report.warnings
    flow = replace(found[0].flow, norms={**found[0].flow.norms, "fc2": 0.0, "fc3": 0.0})
    first, *others = remarks([replace(found[0], flow=flow), *found[1:]])
    assert first.startswith("2 layers get no gradient")
    one = replace(found[0].flow, norms={**found[0].flow.norms, "fc2": 0.0})
    assert remarks([replace(found[0], flow=one), *found[1:]])[0].startswith("1 layer gets no gradient")
    assert others == found[-1].report.warnings
